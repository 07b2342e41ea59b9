"""Recipes: each finds its pattern in the example before the edit, as JAX made it into HLO, and not
in the one after it; what it makes of the first computes the same."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fusionscope.advise.recipes.catalogue import RECIPES, all_pages
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe
from fusionscope.hlo import Module, parse, to_text

PROGRAMS = Path(__file__).parent / "recipes"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
each_recipe = pytest.mark.parametrize(
    ("recipe", "backend"),
    [(recipe, backend) for recipe in RECIPES for backend in sorted(recipe.backends)],
    ids=lambda each: each if isinstance(each, str) else each.id,
)


@cache
def program(recipe: Recipe, side: str) -> Module:
    return parse((PROGRAMS / f"{recipe.id}-{side}.hlo").read_text())


@each_recipe
def test_it_fits_the_example_before_the_edit_alone(recipe: Recipe, backend: str) -> None:
    before = program(recipe, "before")
    rewritten = apply_recipe(recipe, before, backend)
    assert rewritten is not None
    assert set(rewritten.places) <= {each.name for each in before.walk()}
    assert apply_recipe(recipe, program(recipe, "after"), backend) is None


@each_recipe
def test_what_it_makes_is_a_module_that_it_no_longer_fits(recipe: Recipe, backend: str) -> None:
    before = program(recipe, "before")
    rewritten = apply_recipe(recipe, before, backend)
    assert rewritten is not None
    module = parse(to_text(rewritten.module))
    module.check()
    assert apply_recipe(recipe, module, backend) is None
    assert module.entry.root.shape.compatible(before.entry.root.shape)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_its_example_was_proven_where_it_is_offered(recipe: Recipe) -> None:
    (page,) = [page for page in all_pages() if page.recipe.id == recipe.id]
    newest = [proof for proof in page.proofs if proof.jaxlib == page.proofs[-1].jaxlib]
    assert {proof.backend for proof in newest if proof.helps} == recipe.backends


@with_jax
@each_recipe
def test_what_it_makes_computes_the_same(recipe: Recipe, backend: str) -> None:
    runner: Any = importlib.import_module("fusionscope.rerun.runner")
    here = {"name": "cpu", "platform": "cpu", "is_here": True, "description": None}
    device = runner._prepare(here)
    before = program(recipe, "before")
    rewritten = apply_recipe(recipe, before, backend)
    assert rewritten is not None
    texts = to_text(before), to_text(rewritten.module)
    inputs = runner._find_inputs(texts[0], None, 0)
    expected, found = (runner.Executable(text, device, inputs).run() for text in texts)
    for result in runner._compare(expected, found, None):
        assert result["is_equal"] or result["difference"] <= recipe.tolerance
