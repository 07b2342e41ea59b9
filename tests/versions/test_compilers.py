"""The passes of each version, their folders and its pipelines fit each other."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from inspect import signature

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.fusion_passes import FUSION_PASSES, KnownPass
from fusionscope.versions import runs
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import all_compilers, load_compiler

REPLAYED = [names for names in FUSION_PASSES if names.place is not None]


@pytest.mark.parametrize(
    "names", REPLAYED, ids=[f"{item.backend}-{item.name}" for item in REPLAYED]
)
def test_the_folder_of_a_pass_has_its_replay(names: KnownPass) -> None:
    run = import_module(f"fusionscope.passes.{names.place}.run").run
    assert list(signature(run).parameters)[:3] == ["graph", "book", "context"]


@pytest.mark.parametrize(
    "names", REPLAYED, ids=[f"{item.backend}-{item.name}" for item in REPLAYED]
)
def test_some_version_has_each_pass(names: KnownPass) -> None:
    assert any(
        fusion_pass.known == names
        for compiler in all_compilers()
        for fusion_pass in compiler.passes
    )


@pytest.mark.parametrize(
    "compiler", all_compilers(), ids=[compiler.name for compiler in all_compilers()]
)
def test_each_pass_is_in_a_pipeline(compiler: Compiler) -> None:
    """On GPUs: of a pass that is in none, no run is ever found, and nothing is verified."""
    if compiler.backend == "gpu":
        names = {name for passes in compiler.pipelines.values() for name in passes}
        assert {fusion_pass.name for fusion_pass in compiler.passes} <= names


@pytest.mark.parametrize("version", ["0.5.3", "0.6.2", "0.7.2", "0.8"])
def test_a_softmax_is_sought_after_transposes_are_grouped(tmp_path, monkeypatch, version):
    """The stages are those of a dump by jaxlib 0.5.3, around what `triton-softmax-rewriter` did."""
    stages = (
        "after_pipeline-start.before_algsimp",
        "after_algsimp.before_scatter_simplifier",
        "after_transpose-dimension-grouper.before_reduction-degenerate-dim-remover",
        "after_cse.before_constant_folding",
        "after_triton-softmax-rewriter.before_reduction-dimension-grouper",
    )
    for number, stage in enumerate(stages):
        name = f"module_0001.jit_f.{number:04d}.hlo_normalization.{stage}.txt"
        (tmp_path / name).write_text(
            "HloModule jit_f\n\nENTRY f {\n  ROOT x = f32[] parameter(0)\n}\n"
        )
    (module,) = open_dump(tmp_path).modules
    choice = replace(choose_compiler(module), compiler=load_compiler(f"gpu-{version}"))
    monkeypatch.setattr(runs, "choose_compiler", lambda _: choice)
    monkeypatch.setattr(type(module), "shows_all_passes", True)
    softmax = [
        run for run in runs._find_gpu_runs(module) if run.pass_name == "triton-softmax-rewriter"
    ]
    assert [run.before.name.after for run in softmax] == ["cse"]
