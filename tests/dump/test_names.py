"""What the names of dumped files say. The names are those of real dumps."""

from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump.names import FileName, Role, libtpu_of, read_name

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


def stage(module_id, module, counter, pipeline, after, before, role=Role.STAGE):
    label = ".".join(
        [
            pipeline,
            *([f"after_{after}"] if after else []),
            *([f"before_{before}"] if before else []),
        ]
    )
    return FileName(
        role=role,
        module_id=module_id,
        module=module,
        label=label,
        counter=counter,
        pipeline=pipeline,
        after=after,
        before=before,
    )


def file(role, module, label):
    return FileName(role=role, module_id=1, module=module, label=label)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "module_0001.jit_f.0034.fusion.after_priority-fusion.before_cse.txt",
            stage(1, "jit_f", 34, "fusion", "priority-fusion", "cse"),
        ),
        (
            "module_0001.jit_f.0034.fusion.after_priority-fusion.before_cse.hlo.pb",
            stage(1, "jit_f", 34, "fusion", "priority-fusion", "cse", Role.STAGE_PROTO),
        ),
        (  # numbers grow beyond four digits
            "module_12345.jit_f.10000.simplification.after_algsimp.before_cse.txt",
            stage(12345, "jit_f", 10000, "simplification", "algsimp", "cse"),
        ),
        (  # a module named after a Python method, and TPU's suffix
            "module_0003.jit_Model.apply.cl_100387.0002.Main_fusion.after_tpu_fusion."
            "before_pipeline-end.txt",
            stage(3, "jit_Model.apply.cl_100387", 2, "Main_fusion", "tpu_fusion", "pipeline-end"),
        ),
        (  # a module whose name looks like a counter
            "module_0003.f.0001.0002.fusion.after_dce.before_cse.txt",
            stage(3, "f.0001", 2, "fusion", "dce", "cse"),
        ),
        (
            "1763638291123456.module_0001.jit_f.0000.fusion.after_dce.before_cse.txt",
            replace(stage(1, "jit_f", 0, "fusion", "dce", "cse"), run="1763638291123456"),
        ),
        (  # stages inside copy insertion have no pass behind them
            "module_0001.jit_f.0050.copy-insertion.after_removing_unnecessary_copies.txt",
            stage(1, "jit_f", 50, "copy-insertion", "removing_unnecessary_copies", ""),
        ),
        (
            "module_0000.f.0022.tpu-tiling-rewriter.before_tiling_rewriter.txt",
            stage(0, "f", 22, "tpu-tiling-rewriter", "", "tiling_rewriter"),
        ),
        (
            "module_0001.jit_f.before_optimizations.txt",
            file(Role.STAGE, "jit_f", "before_optimizations"),
        ),
        (
            "module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt",
            file(Role.STAGE, "jit_f", "sm_9.0a_gpu_after_optimizations"),
        ),
        (
            "module_0001.jit_f.gfx950_gpu_after_optimizations.txt",
            file(Role.STAGE, "jit_f", "gfx950_gpu_after_optimizations"),
        ),
        (
            "module_0001.jit_f.cpu_after_optimizations.txt",
            file(Role.STAGE, "jit_f", "cpu_after_optimizations"),
        ),
        (
            "module_0001.jit_f.after_optimizations.txt",
            file(Role.STAGE, "jit_f", "after_optimizations"),
        ),
        (
            "module_0001.jit_f.after_codegen.txt",
            file(Role.STAGE, "jit_f", "after_codegen"),
        ),
        (
            "module_0001.jit_f.priority_fusion_dump.txt",
            file(Role.PRIORITY_FUSION, "jit_f", "priority_fusion_dump.txt"),
        ),
        (
            "module_0001.jit_f.gpu_target_config.pbtxt",
            file(Role.DEVICE, "jit_f", "gpu_target_config.pbtxt"),
        ),
        (
            "module_0001.jit_f.config.pbtxt",
            file(Role.CONFIG, "jit_f", "config.pbtxt"),
        ),
        (
            "module_0001.jit_f.debug_options",
            file(Role.FLAGS, "jit_f", "debug_options"),
        ),
        (
            "module_0001.metadata.textproto",
            file(Role.PASS_TIMES, None, "metadata.textproto"),
        ),
        (
            "main.5.module_0001.jit_f._fusion.pyz",
            file(Role.FUSION_EXPLORER, "jit_f", "main.5"),
        ),
        (
            "region_0.3.clone.module_0001.jit_f._fusion.html",
            file(Role.FUSION_EXPLORER, "jit_f", "region_0.3.clone"),
        ),
    ],
)  # fmt: skip
def test_names_of_the_compiler(name, expected):
    assert read_name(name) == expected


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("module_0001.jit_f.ptx", Role.PTX),
        ("module_0001.jit_f.12.ptx", Role.PTX),  # by --xla_dump_emitter_re
        ("module_0001.jit_f.thunk_sequence.txt", Role.THUNKS),
        ("module_0001.jit_f.thunk_sequence_after_thunk_passes.txt", Role.THUNKS_IN_GRAPHS),
        ("module_0001.jit_f.thunk_metadata.txt", Role.THUNK_METADATA),
    ],
)
def test_kernels_and_launches_belong_to_their_module(name, role):
    actual = read_name(name)
    assert actual is not None
    assert (actual.role, actual.module_id, actual.module) == (role, 1, "jit_f")


def test_a_printed_name_means_the_same_as_a_file_name():
    """--xla_dump_to=- prints pipelines with the spaces that files have as underscores."""
    printed = "module_0000.f.0001.Main fusion.after_tpu_fusion.before_pipeline-end.txt"
    assert read_name(printed) == read_name(printed.replace(" ", "_"))


@pytest.mark.parametrize(
    "name",
    [
        "module_0001.jit_f.cpu_after_optimizations-buffer-assignment-values.txt",
        "module_0001.jit_f.after_optimizations-memory-usage-report.pb",
        "module_0001.jit_f.ir-with-opt.ll",
        "module_0001.jit_f.0001.fusion.txt",
        "module_x.jit_f.before_optimizations.txt",
        "module_0001",
        "notes.txt",
        "",
        "\x1b[31m",
    ],
)
def test_other_files_are_of_no_use(name):
    assert read_name(name) is None


@pytest.mark.parametrize(
    "dump", sorted(DUMPS.glob("*/*")), ids=lambda path: "-".join(path.parts[-2:])
)
def test_every_file_of_a_dump_that_looks_like_a_stage_is_one(dump):
    """Stages are all files with `.after_`, `.before_` or a fixed name, but no buffer report."""
    for file in dump.iterdir():
        name = file.name.removesuffix(".gz")
        actual = read_name(name)
        is_stage = (
            name.endswith((".txt", ".hlo.pb"))
            and any(part in name for part in ("after_", "before_"))
            and not any(
                part in name
                for part in ("-buffer-assignment", "-live-range", "-memory-usage", ".thunk_")
            )
        )
        assert is_stage == (actual is not None and actual.role in (Role.STAGE, Role.STAGE_PROTO)), (
            name
        )
        if is_stage and actual is not None:
            assert name.startswith(f"module_{actual.module_id:04d}.{actual.module}.")
            assert name.rpartition(f".{actual.label}.")[2] in ("txt", "hlo.pb")


@pytest.mark.parametrize(
    ("module", "release"),
    [
        ("jit_step.cl_914450892", "0.0.41"),  # as jax[tpu]==0.10.1 names its modules
        ("jit_step.cl_1", None),
        ("jit_step", None),
    ],
)
def test_a_build_of_libtpu_is_a_release(module, release):
    assert libtpu_of(module) == release
