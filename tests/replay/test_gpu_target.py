"""What a dump of a GPU was compiled by, and which passes its flags let run."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.triton_support import (
    TritonVersion,
)
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.jaxlib_0_10_2.gpu import TRITON_0_10
from fusionscope.versions.jaxlib_0_11_2.gpu import TRITON_0_11
from fusionscope.versions.jaxlib_0_12.gpu import GPU_0_12, TRITON_0_12
from fusionscope.versions.known import load_compiler
from fusionscope.versions.runs import find_runs

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
GEMM = "triton-gemm-rewriter"


def module_of(name: str) -> DumpedModule:
    (module,) = open_dump(DUMPS / name).modules
    return module


def gpu_model_of(module: DumpedModule) -> GpuModel:
    return read_context(module).target.gpu_model


@pytest.mark.parametrize(
    ("name", "version", "triton"),
    [
        ("h100/dense", "gpu-0.12", TRITON_0_12),
        ("h100-jaxlib-0.11/dense", "gpu-0.11", TRITON_0_11),
        ("h100-jaxlib-0.10/dense", "gpu-0.10", TRITON_0_10),
        ("mi300x/concatenate", "gpu-0.12", TRITON_0_12),
    ],
)
def test_the_version_follows_from_the_passes(
    name: str, version: str, triton: TritonVersion
) -> None:
    module = module_of(name)
    assert choose_compiler(module).compiler == load_compiler(version)
    assert gpu_model_of(module).triton is triton


@pytest.mark.parametrize("version", ["gpu-0.11", "gpu-0.10"])
def test_another_version_fuses_other_things_around_a_dot(version: str) -> None:
    dump = open_dump(DUMPS / "h100" / "dense")
    local, second = verify(dump, dump.modules), verify(dump, dump.modules, load_compiler(version))
    assert local.identical
    assert [
        fusion_pass.pass_name for fusion_pass in second.passes if not fusion_pass.is_identical
    ] == [GEMM]


def with_flags(folder: Path, *flags: str) -> DumpedModule:
    shutil.copytree(DUMPS / "h100" / "dense", folder)
    (file,) = folder.glob("*.debug_options")
    file.write_text(file.read_text() + "\n".join(flags))
    (module,) = open_dump(folder).modules
    return module


def test_flags_are_looked_at(tmp_path: Path) -> None:
    module = with_flags(
        tmp_path / "dump",
        "xla_gpu_experimental_gemm_fusion_v2: false",
        "xla_gpu_experimental_enable_tiling_propagation: false",
        "xla_gpu_gemm_rewrite_size_threshold: 7",
    )
    assert GPU_GEMM_V1 in choose_compiler(module).compiler.books
    assert gpu_model_of(module) == replace(
        GPU_0_12, gemm_threshold=7, triton=replace(TRITON_0_12, propagates_tiles=False)
    )


@pytest.mark.parametrize(
    ("flag", "left_out"),
    [
        ("xla_gpu_enable_triton_gemm: false", GEMM),
        ("xla_gpu_triton_gemm_any: false", GEMM),
        ('xla_disable_hlo_passes: "copy_fusion"', "copy_fusion"),
    ],
)
def test_what_a_flag_keeps_from_running_is_not_replayed(
    tmp_path: Path, flag: str, left_out: str
) -> None:
    module = with_flags(tmp_path / "dump", flag)
    assert left_out not in [run.pass_name for run in find_runs(module)]
    assert left_out in [run.pass_name for run in find_runs(module_of("h100/dense"))]


def test_only_passes_that_a_flag_names_are_replayed(tmp_path: Path) -> None:
    module = with_flags(tmp_path / "dump", f'xla_enable_hlo_passes_only: "{PRIORITY_FUSION}"')
    assert {run.pass_name for run in find_runs(module)} == {PRIORITY_FUSION}


def test_without_tensor_cores_for_triton_none_of_its_passes_run(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    with_flags(folder)
    (file,) = folder.glob("*.gpu_target_config.pbtxt")
    text, count = re.subn(r"(cuda_compute_capability\s*\{\s*major: )9", r"\g<1>7", file.read_text())
    assert count == 1
    file.write_text(text)
    for stage in folder.glob("*sm_9.0a*"):
        stage.rename(folder / stage.name.replace("sm_9.0a", "sm_7.0"))
    (module,) = open_dump(folder).modules
    names = {run.pass_name for run in find_runs(module)}
    assert not names.intersection((GEMM, "triton-softmax-rewriter", "fusion-block-level-rewriter"))
    assert PRIORITY_FUSION in names
