"""Applies several recipes to the program of a dump."""

from __future__ import annotations

from collections.abc import Iterable

from fusionscope.advise.recipes.catalogue import in_order
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module
from fusionscope.rerun.programs import find_program


def rewrite(module: DumpedModule, recipes: Iterable[Recipe]) -> Module:
    """Return the program of ``module`` after all of ``recipes``, in the order of their list. Raises
    ``UnusableInput`` if the dump lacks the program, or one of them does not fit.
    """
    program = find_program(module)
    for recipe in in_order(recipes):
        rewritten = apply_recipe(recipe, program, module.backend or "")
        if rewritten is None:
            raise UnusableInput(
                f"{module.name}: {recipe.spelling} fits nowhere in the program",
                hint=_fitting(recipe, program, module.backend or ""),
            )
        program = rewritten.module
    return program


def _fitting(recipe: Recipe, program: Module, backend: str) -> str | None:
    """Return which other numbers of the recipe fit; None if none does."""
    spellings = [
        variant.spelling
        for variant in recipe.variants
        if apply_recipe(variant, program, backend) is not None
    ]
    return f"try {' or '.join(spellings)}" if spellings else None
