"""The list of recipes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches

from fusionscope.advise.recipes.argmax_of_logits import ArgmaxOfLogits
from fusionscope.advise.recipes.associative_scan import AssociativeScan
from fusionscope.advise.recipes.batch_calls import BatchCalls
from fusionscope.advise.recipes.divide_for_remainder import DivideForRemainder
from fusionscope.advise.recipes.donate_update import DonateUpdate
from fusionscope.advise.recipes.factor_gradients import FactorGradients
from fusionscope.advise.recipes.gather_payload import GatherPayload
from fusionscope.advise.recipes.hoist_from_loop import HoistFromLoop
from fusionscope.advise.recipes.join_halves import JoinHalves
from fusionscope.advise.recipes.multiply_distances import MultiplyDistances
from fusionscope.advise.recipes.multiply_pixels import MultiplyPixels
from fusionscope.advise.recipes.multiply_small_dots import MultiplySmallDots
from fusionscope.advise.recipes.multiply_thin_dots import MultiplyThinDots
from fusionscope.advise.recipes.multiply_vector import MultiplyVector
from fusionscope.advise.recipes.narrow_dot import NarrowDot
from fusionscope.advise.recipes.one_pass_variance import OnePassVariance
from fusionscope.advise.recipes.proofs import Proof, read_proofs
from fusionscope.advise.recipes.recipe import Recipe
from fusionscope.advise.recipes.recompute_residuals import RecomputeResiduals
from fusionscope.advise.recipes.reduce_parts import ReduceParts
from fusionscope.advise.recipes.remove_barrier import RemoveBarrier
from fusionscope.advise.recipes.search_by_sort import SearchBySort
from fusionscope.advise.recipes.select_for_scatter import SelectForScatter
from fusionscope.advise.recipes.select_in_windows import SelectInWindows
from fusionscope.advise.recipes.shift_depthwise import ShiftDepthwise
from fusionscope.advise.recipes.small_factors import SmallFactors
from fusionscope.advise.recipes.store_narrow import StoreNarrow
from fusionscope.advise.recipes.sum_in_parts import SumInParts
from fusionscope.advise.recipes.take_apart import TakeApart
from fusionscope.advise.recipes.top_of_sort import TopOfSort
from fusionscope.advise.recipes.total_of_rows import TotalOfRows
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.advise.recipes.unroll_whole import UnrollWhole
from fusionscope.advise.recipes.update_in_place import UpdateInPlace
from fusionscope.advise.recipes.update_rows import UpdateRows
from fusionscope.errors import UnusableInput, quoted

RECIPES: tuple[Recipe, ...] = (
    SelectForScatter(),
    SelectInWindows(),
    ReduceParts(),
    SumInParts(),
    OnePassVariance(),
    MultiplySmallDots(),
    MultiplyThinDots(),
    MultiplyVector(),
    MultiplyDistances(),
    FactorGradients(),
    NarrowDot(),
    JoinHalves(),
    MultiplyPixels(),
    ShiftDepthwise(),
    BatchCalls(),
    SmallFactors(),
    TotalOfRows(),
    ArgmaxOfLogits(),
    TopOfSort(),
    SearchBySort(),
    GatherPayload(),
    TakeApart(),
    DivideForRemainder(),
    DonateUpdate(),
    UpdateInPlace(),
    UpdateRows(),
    StoreNarrow(),
    AssociativeScan(),
    HoistFromLoop(),
    RecomputeResiduals(),
    UnrollLoop(),
    UnrollWhole(),
    RemoveBarrier(),
)


@dataclass(frozen=True, slots=True)
class RecipePage:
    """One recipe and the figures of its example."""

    recipe: Recipe
    proofs: tuple[Proof, ...]

    @property
    def backends(self) -> list[str]:
        """Return the backends on which it helps."""
        return sorted(self.recipe.backends)


def all_pages() -> tuple[RecipePage, ...]:
    """Return the pages of all recipes."""
    proofs = read_proofs()
    return tuple(RecipePage(recipe, proofs.get(recipe.id, ())) for recipe in RECIPES)


def find_page(id: str) -> RecipePage:
    """Return the page of one recipe. Raises ``UnusableInput`` if no recipe has this id."""
    for page in all_pages():
        if page.recipe.id == id:
            return page
    raise _unknown(id)


def in_order(recipes: Iterable[Recipe]) -> list[Recipe]:
    """Return recipes in the order in which several are applied to one program, that of the list."""
    ids = [recipe.id for recipe in RECIPES]
    return sorted(recipes, key=lambda recipe: ids.index(recipe.id))


def read_recipe(spelling: str) -> Recipe:
    """Return the recipe that ``Recipe.spelling`` gives. Raises ``UnusableInput`` if there is none,
    or a limit is not one of its own or no number.
    """
    id, *limits = spelling.split(",")
    recipe = next((recipe for recipe in RECIPES if recipe.id == id), None)
    if recipe is None:
        raise _unknown(id)
    names = [field.name for field in fields(recipe)]
    for limit in limits:
        name, _, number = limit.partition("=")
        if name not in names or not number.isdecimal():
            expected = " or ".join(f"{name}=NUMBER" for name in names) or "no limit"
            raise UnusableInput(f"{id}: expected {expected}, got {quoted(limit)}")
        recipe = replace(recipe, **{name: int(number)})
    return recipe


def _unknown(id: str) -> UnusableInput:
    ids = [recipe.id for recipe in RECIPES]
    close = ", ".join(get_close_matches(id, ids, 3, 0.4)) or ", ".join(ids[:3])
    return UnusableInput(
        f"no recipe is called {quoted(id)}, expected one such as {close}",
        hint="fusionscope recipes lists them all",
    )
