"""The passes of each version, their folders and its pipelines fit each other."""

from __future__ import annotations

from importlib import import_module
from inspect import signature

import pytest

from fusionscope.dump.fusion_passes import FUSION_PASSES, KnownPass
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import all_compilers

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
