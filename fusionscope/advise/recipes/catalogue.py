"""All recipes."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from fusionscope.advise.recipes.proofs import Proof, read_proofs
from fusionscope.advise.recipes.recipe import Recipe
from fusionscope.advise.recipes.reduce_parts import ReduceParts
from fusionscope.advise.recipes.select_for_scatter import SelectForScatter
from fusionscope.errors import UnusableInput, quoted

RECIPES: tuple[Recipe, ...] = (
    SelectForScatter(),
    ReduceParts(),
)


@dataclass(frozen=True, slots=True)
class RecipePage:
    """One recipe and the figures of its example."""

    recipe: Recipe
    proofs: tuple[Proof, ...]

    @property
    def backends(self) -> list[str]:
        """Those on which it helps."""
        return sorted(self.recipe.backends)


def all_pages() -> tuple[RecipePage, ...]:
    """Of every recipe."""
    proofs = read_proofs()
    return tuple(RecipePage(recipe, proofs.get(recipe.id, ())) for recipe in RECIPES)


def find_page(id: str) -> RecipePage:
    """Raises ``UnusableInput`` where no recipe has this id."""
    for page in all_pages():
        if page.recipe.id == id:
            return page
    ids = [recipe.id for recipe in RECIPES]
    close = ", ".join(get_close_matches(id, ids, 3, 0.4)) or ", ".join(ids[:3])
    raise UnusableInput(
        f"no recipe is called {quoted(id)}, expected one such as {close}",
        hint="fusionscope recipes lists them all",
    )
