"""A dump says which version made it, and never a wrong one."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.versions.known import COMPILERS, load_compiler
from fusionscope.versions.recognition import VERSIONS, recognise

HERE = Path(__file__).parent
SAMPLES = HERE.parent.parent / "samples" / "dumps"
# The names of the stages that one program left, by target and version of jaxlib.
LISTS = sorted((HERE / "stages").glob("*.txt"))
PASS = "9999.simplification.after_pipeline-start.before_{}.txt"


def version_of(path: Path) -> str:
    """As the table calls it, which has one name for releases that no mark tells apart."""
    release = path.stem.partition("-")[2]
    names = {"0.8.3": "0.8", "0.12.0": "0.12", "0.12.0.1": "0.12"}
    return names.get(release, release)


def dumped(folder: Path, labels: list[str]) -> DumpedModule:
    for label in labels:
        (folder / f"module_0001.jit_f.{label}").write_text("HloModule m\n")
    (module,) = open_dump(folder).modules
    return module


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_version_is_recognised(path, tmp_path):
    actual = recognise(dumped(tmp_path, path.read_text().split()))
    assert version_of(path) in actual.versions
    assert actual.shown_by
    # Compilers for GPUs differ in more than those for CPUs do.
    assert len(actual.versions) <= (2 if path.stem.startswith("h100") else 6)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
@settings(max_examples=15)
@given(data=st.data())
def test_no_part_of_a_dump_is_taken_for_another_version(path, data, tmp_path_factory):
    labels = path.read_text().split()
    saved = data.draw(st.lists(st.sampled_from(labels), min_size=1, unique=True))
    folder = tmp_path_factory.mktemp("part")
    (folder / "module_0001.jit_f.debug_options").write_text('xla_dump_hlo_pass_re: "some.*"\n')
    module = dumped(folder, saved)
    if module.backend is not None:
        assert version_of(path) in recognise(module).versions


@pytest.mark.parametrize("path", [p for p in LISTS if p.stem.startswith("cpu")], ids=str)
def test_a_dump_whose_flags_turn_libraries_off_is_recognised(path, tmp_path):
    """As with ``--xla_cpu_experimental_ynn_fusion_type=``."""
    *stages, program, final = path.read_text().split()
    labels = [stage.partition(".")[2] for stage in stages if ".dot-library-passes." not in stage]
    numbered = [f"{number:04}.{label}" for number, label in enumerate(labels)]
    module = dumped(tmp_path, [*numbered, program, final])
    assert version_of(path) in recognise(module).versions


@pytest.mark.parametrize(
    "name", ["a_inference_f_3__XlaMustCompile_true_.4", "cluster_0", "SyncTensorsGraph.7"]
)
def test_other_frameworks_have_an_xla_of_the_same_time(name, tmp_path):
    for label in (HERE / "stages" / "cpu-0.5.3.txt").read_text().split():
        (tmp_path / f"module_0001.{name}.{label}").write_text("HloModule m\n")
    (module,) = open_dump(tmp_path).modules
    assert str(recognise(module)) == "XLA as in jaxlib 0.5.3"


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_an_unknown_pass_is_of_a_newer_version(target, tmp_path):
    labels = (HERE / "stages" / f"{target}-0.12.0.1.txt").read_text().split()
    actual = recognise(dumped(tmp_path, [*labels, PASS.format("moon-phase-rewriter")]))
    assert actual.is_newer
    assert not actual.versions
    assert "moon-phase-rewriter" in actual.shown_by
    assert str(actual) == "jaxlib newer than 0.12, or an unknown one"


def test_an_unknown_flag_is_of_a_newer_version(tmp_path):
    labels = (HERE / "stages" / "h100-0.12.0.1.txt").read_text().split()
    (tmp_path / "module_0001.jit_f.config.pbtxt").write_text(
        "debug_options {\n  xla_gpu_follow_the_moon: true\n}\n"
    )
    actual = recognise(dumped(tmp_path, labels))
    assert actual.is_newer
    assert "xla_gpu_follow_the_moon" in actual.shown_by


def test_an_unknown_pass_does_not_make_an_older_dump_newer(tmp_path):
    labels = (HERE / "stages" / "h100-0.11.2.txt").read_text().split()
    actual = recognise(dumped(tmp_path, [*labels, PASS.format("moon-phase-rewriter")]))
    assert actual.versions == ("0.11.2",)


def test_passes_of_several_versions_are_of_none(tmp_path):
    labels = [
        label
        for version in ("0.5.3", "0.12.0.1")
        for label in (HERE / "stages" / f"h100-{version}.txt").read_text().split()
    ]
    actual = recognise(dumped(tmp_path, labels))
    assert not actual.versions
    assert str(actual) == "an unknown version of jaxlib"


def test_where_nothing_shows_the_version_it_is_unknown(tmp_path):
    actual = recognise(dumped(tmp_path, ["0001.fusion.after_priority-fusion.before_cse.txt"]))
    assert actual.versions == VERSIONS
    assert not actual.shown_by
    assert str(actual) == "an unknown version of jaxlib"


@pytest.mark.parametrize(
    ("flags", "versions"),
    [
        ((), ("0.5.3", "0.6.2", "0.7.2", "0.8")),
        (("xla_gpu_default_to_alg_dot_bf16_bf16_f32",), ("0.9.0",)),
        (
            (
                "xla_gpu_default_to_alg_dot_bf16_bf16_f32",
                "xla_gpu_experimental_all_fusions_with_triton",
            ),
            ("0.9.1",),
        ),
    ],
)
def test_flags_show_the_version(flags, versions, tmp_path):
    lines = [f"  {flag}: true\n" for flag in flags]
    options = tmp_path / "module_0001.jit_f.config.pbtxt"
    label = "0001.fusion.after_priority-fusion.before_cse.txt"
    options.write_text(f"debug_options {{\n  xla_gpu_enable_triton_gemm: false\n{''.join(lines)}}}")
    actual = recognise(dumped(tmp_path, [label])).versions
    assert actual[-len(versions) :] == versions
    # Some writers leave out flags that are off.
    options.write_text(f"debug_options {{\n  xla_gpu_enable_triton_gemm: true\n{''.join(lines)}}}")
    assert recognise(dumped(tmp_path, [label])).versions == VERSIONS


def test_samples_are_of_the_versions_that_their_folders_name():
    visited = set()
    for folder in SAMPLES.iterdir():
        if folder.name.startswith("tpu"):
            continue
        expected = {"0.10": "0.10.2", "0.11": "0.11.2", "": "0.12"}.get(
            version := folder.name.partition("jaxlib-")[2], version
        )
        if folder.name.endswith("xla-2023"):
            expected = "2023"
        for dump in folder.iterdir():
            for module in open_dump(dump).modules:
                assert expected in recognise(module).versions, dump
                assert len(recognise(module).versions) <= 2
        visited.add(expected)
    assert visited == {"2023", "0.4.34", "0.4.35", "0.10.2", "0.11.2", "0.12"}


@pytest.mark.parametrize("name", COMPILERS)
def test_a_compiler_is_what_it_is_called(name):
    compiler, names = load_compiler(name), COMPILERS[name]
    assert compiler.name == name
    assert {fusion_pass.backend for fusion_pass in compiler.passes} == {names.backend}
    assert (compiler.gpu is not None) is (names.backend == "gpu")
    if names.backend == "gpu":
        assert compiler.has_priority_fusion is names.has_priority_fusion
        listed = {name for passes in compiler.pipelines.values() for name in passes}
        assert {fusion_pass.name for fusion_pass in compiler.passes} <= listed
