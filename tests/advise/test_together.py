"""The best changes to take together."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.advise.recipes.catalogue import RECIPES, in_order, read_recipe
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe
from fusionscope.advise.recipes.region_trials import RegionTrial
from fusionscope.advise.recipes.trying import Compilation, find_offers
from fusionscope.advise.split_products import find_flag_offers
from fusionscope.advise.together import TryTogether, find_together
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion, SuggestionKind
from fusionscope.facts.times import count_figures
from fusionscope.hlo import to_text
from fusionscope.rerun.programs import find_program
from fusionscope.versions.context import read_context

with_plugin = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax for GPUs"
)
BEFORE = Figures(10, 1000, 100.0)


def tried(change: str, time_us: float, kind: SuggestionKind = SuggestionKind.RECIPE) -> Suggestion:
    return Suggestion(
        number=0,
        kind=kind,
        change=change,
        evidence=HowTried.REGION,
        pairs=(),
        before=BEFORE,
        after=replace(BEFORE, time_us=time_us),
    )


def times_of(**times: float) -> TryTogether:
    """Return what tries sets: ``ab=50`` is the time with the changes a and b."""

    def try_together(changes: Sequence[Suggestion]) -> tuple[Figures, HowTried] | None:
        time = times.get("".join(sorted(change.change for change in changes)))
        return None if time is None else (replace(BEFORE, time_us=time), HowTried.REGION)

    return try_together


def test_each_change_is_added_that_saves_more() -> None:
    together = find_together(
        [tried("a", 90.0), tried("b", 70.0), tried("c", 80.0)], times_of(bc=60.0, abc=55.0)
    )
    assert together is not None
    assert [step.change for step in together.steps] == ["b", "c", "a"]
    assert [step.after.time_us for step in together.steps] == [70.0, 60.0, 55.0]
    assert together.after.time_us == 55.0 and not together.excluded


def test_what_saves_nothing_more_or_cannot_be_tried_is_left_out() -> None:
    together = find_together(
        [tried("a", 70.0), tried("b", 80.0), tried("c", 85.0), tried("d", 90.0)],
        times_of(ab=70.0, ad=65.0),
    )
    assert together is not None
    assert [step.change for step in together.steps] == ["a", "d"]
    assert [exclusion.change for exclusion in together.excluded] == ["b", "c"]


@pytest.mark.parametrize(
    "suggestions",
    [
        [tried("a", 70.0)],
        [tried("a", 70.0), tried("b", 80.0)],  # which exclude each other
        [tried("a", 90.0), tried("c", 90.0), tried("--disable x", 50.0, SuggestionKind.RULE)],
    ],
)
def test_there_is_no_set_that_is_no_better_than_one_change(
    suggestions: list[Suggestion],
) -> None:
    assert find_together(suggestions, times_of(ab=75.0, ac=80.0)) is None


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_the_spelling_of_a_recipe_is_read(recipe: Recipe) -> None:
    for variant in recipe.variants:
        assert read_recipe(variant.spelling) == variant
    assert read_recipe(recipe.id) == recipe


@pytest.mark.parametrize("spelling", ["unroll", "unroll-loop,time=4", "unroll-loop,times=few"])
def test_a_misspelt_recipe_is_refused(spelling: str) -> None:
    with pytest.raises(UnusableInput, match="unroll-loop"):
        read_recipe(spelling)


def test_recipes_are_applied_in_the_order_of_the_list() -> None:
    assert in_order(reversed(RECIPES)) == list(RECIPES)


STEPS = """
import jax.numpy as jnp
from jax import lax

def program(state, force, weights):
    for _ in range(3):
        force = jnp.tanh(force @ weights)
    for scale in range(60):
        state = jnp.sin(state) * scale + force[0]

    def step(state, row):
        state = 0.9 * state + row
        return state, state.sum()

    return lax.scan(step, state, force)
"""


@with_plugin
def test_a_recipe_and_a_flag_together_are_what_compiling_the_whole_shows(tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text(STEPS)
    target = read_target("h100")
    arguments = ("f32[2048]", "f32[64,2048]", "f32[2048,2048]")
    captured = capture(read_program(f"{file}:program", arguments), target, tmp_path / "dump")
    (module,) = open_dump(captured.directory).modules
    gpu = read_context(module).gpu
    assert module.final is not None
    before = count_figures(module.read(module.final), "gpu", gpu)
    trial = RegionTrial(module, before, Compilation(sys.executable))
    offers = [offer for offer in find_offers(module) if offer.recipe.id == "unroll-loop"]
    suggestions = {
        attempt.change: attempt for attempt in trial.run([*offers, *find_flag_offers(module)], ())
    }
    together = trial.together
    assert together is not None and len(together.steps) == len(suggestions) == 2
    recipe = read_recipe(suggestions["unroll-loop"].recipe)
    rewritten = apply_recipe(recipe, find_program(module), "gpu")
    assert rewritten is not None
    edited = tmp_path / "edited.hlo"
    edited.write_text(to_text(rewritten.module))
    flags = [change for change in suggestions if change.startswith("--")]
    program = Program(kind=ProgramKind.HLO, file=edited)
    (after,) = open_dump(
        capture(program, target, tmp_path / "after", flags=flags).directory
    ).modules
    assert after.final is not None
    actual = count_figures(after.read(after.final), "gpu", gpu)
    assert together.after.time_us == pytest.approx(actual.time_us, rel=0.02)
