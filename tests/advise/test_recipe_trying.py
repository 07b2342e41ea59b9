"""Recipes on a dump: which fit, on which lines, and what the compiler makes of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fusionscope import DumpedModule, UnusableInput
from fusionscope.advise.recipes.catalogue import RECIPES
from fusionscope.advise.recipes.trying import Compilation, find_offers, untried
from fusionscope.advise.suggest import suggester
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.explain import Selection, explain
from fusionscope.facts.suggestions import Figures, HowTried, SuggestionKind

PROGRAMS = Path(__file__).parent / "recipes"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)

CALLED = """HloModule jit_step

FileNames
1 "step.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

grow.1 {
  p = f32[8] parameter(0)
  ROOT kept = f32[8] opt-barrier(p), metadata={op_name="keep"}
}

ENTRY main {
  x = f32[8] parameter(0)
  up = f32[8] exponential(x)
  ROOT called = f32[8] call(up), to_apply=grow.1, metadata={op_name="jit(step)/grow" stack_frame_id=1}
}
"""  # noqa: E501


def dumped(directory: Path, text: str, backend: str) -> DumpedModule:
    """A dump of nothing but the program and a final stage, which is the same."""
    final = {"cpu": "cpu_after_optimizations", "gpu": "sm_9.0a_gpu_after_optimizations"}[backend]
    for stage in ("before_optimizations", final):
        (directory / f"module_0001.jit_program.{stage}.txt").write_text(text)
    (module,) = open_dump(directory).modules
    assert module.backend == backend
    return module


@each_recipe
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_a_recipe_is_offered_where_it_helps(recipe, backend, tmp_path):
    text = (PROGRAMS / f"{recipe.id}-before.hlo").read_text()
    module = dumped(tmp_path, text, backend)
    offers = find_offers(module)
    assert (recipe in [offer.recipe for offer in offers]) == (backend in recipe.backends)
    for suggestion in untried(offers, (), Figures(1, 2, 3.0)):
        assert suggestion.kind is SuggestionKind.RECIPE
        assert suggestion.evidence is HowTried.UNTRIED
        assert suggestion.before == suggestion.after == Figures(1, 2, 3.0)


def test_what_is_called_is_on_the_line_of_the_call(tmp_path):
    (offer,) = find_offers(dumped(tmp_path, CALLED, "cpu"))
    assert offer.recipe.id == "remove-barrier"
    assert offer.sources == ("step.py:7",)
    assert offer.op_names == {"jit(step)/grow/keep"}


def test_a_dump_without_the_program_offers_nothing(tmp_path):
    (tmp_path / "module_0001.jit_program.cpu_after_optimizations.txt").write_text(CALLED)
    (module,) = open_dump(tmp_path).modules
    with pytest.raises(UnusableInput, match="lacks the program"):
        find_offers(module)
    (facts,) = explain(open_dump(tmp_path), suggest=suggester(Selection())).modules
    assert facts.suggestions is not None and not facts.suggestions.helpful


@with_jax
def test_the_compiler_is_asked(tmp_path):
    """A cache of 8 MB is copied for an update of 4 kB, and no longer once it is donated."""
    recipe = next(item for item in RECIPES if item.id == "donate-update")
    file = tmp_path / "cache.py"
    file.write_text(recipe.example.module_of(recipe.example.before))
    program = read_program(f"{file}:program", recipe.example.arguments)
    captured = capture(program, read_target("cpu"), tmp_path / "dump")
    compilation = Compilation(sys.executable, seconds=0.1)
    suggest = suggester(Selection(), compilation=compilation)
    (facts,) = explain(open_dump(captured.directory), suggest=suggest).modules
    assert facts.suggestions is not None
    actual = facts.suggestions.helpful + facts.suggestions.rejected
    (donated,) = (item for item in actual if item.kind is SuggestionKind.RECIPE)
    assert donated.evidence is HowTried.MEASURED
    assert (donated.before.launches, donated.after.launches) == (2, 1)
    assert donated.before.bytes_moved > 16_000_000 > 10_000 > donated.after.bytes_moved
    assert donated.sources == (f"{file}:6",)


@with_jax
def test_on_a_cpu_a_recipe_that_was_not_timed_is_no_suggestion(tmp_path):
    """The dump leaves a large constant out, so the program can be compiled, but not run."""
    recipe = next(item for item in RECIPES if item.id == "donate-update")
    file = tmp_path / "cache.py"
    table = "\n\nupdate = program\n\n\ndef program(*arguments):\n"
    table += "    import numpy\n\n    return update(*arguments), numpy.arange(4096.0) ** 0.5\n"
    file.write_text(recipe.example.module_of(recipe.example.before) + table)
    program = read_program(f"{file}:program", recipe.example.arguments)
    captured = capture(program, read_target("cpu"), tmp_path / "dump")
    suggest = suggester(Selection(), compilation=Compilation(sys.executable, seconds=0.1))
    (facts,) = explain(open_dump(captured.directory), suggest=suggest).modules
    assert facts.suggestions is not None
    assert facts.suggestions.helpful == ()
    (donated,) = facts.suggestions.unmeasured
    assert (donated.change, donated.evidence) == ("donate-update", HowTried.COMPILED)
