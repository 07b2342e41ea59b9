"""A variance that reads its operand twice: for the mean, and for the distances from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    array,
    combiner,
    integers,
    is_zero,
    put,
    reducer,
    scalar,
    text_of,
    unspread,
)
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.search import reachable


class OnePassVariance(Recipe):
    __slots__ = ()
    id: ClassVar = "one-pass-variance"
    title: ClassVar = "the variance as the mean of squares less the square of the mean"
    what: ClassVar = (
        "The squares of the distances from a mean are summed, as in `var`, `std` and hand-written "
        "normalizations. The sum becomes the sum of the squares, less the squared sum divided by "
        "the number of elements. Its gradient no longer contains the sum of all distances, which "
        "is zero."
    )
    why: ClassVar = (
        "The distances need the mean, so the operand is read once for the mean and once more for "
        "the variance. Without them, both sums come from one reading, and on a GPU from one kernel."
    )
    backfires: ClassVar = (
        "If the mean is large and the variance small, the difference cancels: in 32 bits, where "
        "the mean was a thousand standard deviations, the variance was 6 % off. Over the last "
        "dimension on GPUs, an unchanged normalization becomes one kernel, which this would split; "
        "there the recipe does not apply. On a CPU the example is faster, but of four whole "
        "programs none was, and one took a third longer."
    )
    backends: ClassVar = frozenset({"gpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[2048,1024]",),
        """
def program(values):
    mean = values.mean(axis=0)
    variance = values.var(axis=0)
    return (values - mean) / jnp.sqrt(variance + 1e-5)
""",
        """
def program(values):
    mean = values.mean(axis=0)
    variance = jnp.maximum((values * values).mean(axis=0) - mean * mean, 0)
    return (values - mean) / jnp.sqrt(variance + 1e-5)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            values = _squared_distances(instruction)
            if values is None:
                continue
            if values.shape.rank - 1 not in instruction.attribute("dimensions"):
                distances = instruction.operands[0].operands[0]
                for reduction in _sums_of(distances, instruction.attribute("dimensions")):
                    yield Site(reduction, partial(_remove_sum, reduction))
                yield Site(instruction, partial(_rewrite, instruction, values))


def _squared_distances(reduction: MutableInstruction) -> MutableInstruction | None:
    """Return the value whose squared distances from the mean ``reduction`` sums."""
    if not _is_sum(reduction):
        return None
    square = reduction.operands[0]
    if square.opcode != "multiply":
        return None
    distance, second = square.operands
    if distance is not second or distance.opcode != "subtract":
        return None
    values, mean = distance.operands
    dimensions = reduction.attribute("dimensions")
    return values if _is_mean(unspread(mean), values, dimensions) else None


def _sums_of(
    distances: MutableInstruction, dimensions: tuple[int, ...]
) -> Iterator[MutableInstruction]:
    """Yield sums over ``dimensions`` of ``distances`` times what is equal along them.

    Distances from a mean add up to zero. The gradient of ``var`` contains such a sum, that of a
    variance in one pass does not.
    """

    def scaled(product: MutableInstruction) -> list[MutableInstruction]:
        return [user for user in product.users if _scales(user, product, dimensions)]

    for product in reachable([distances], scaled):
        for user in product.users:
            if _is_sum(user) and user.attribute("dimensions") == dimensions:
                yield user


def _scales(
    user: MutableInstruction, product: MutableInstruction, dimensions: tuple[int, ...]
) -> bool:
    """Return whether ``user`` is ``product`` times something that is equal along ``dimensions``."""
    if user.opcode == "negate":
        return True
    if user.opcode != "multiply":
        return False
    factors = [operand for operand in user.operands if operand is not product]
    return len(factors) == 1 and _is_equal_along(factors[0], dimensions)


def _is_equal_along(value: MutableInstruction, dimensions: tuple[int, ...]) -> bool:
    return value.opcode == "broadcast" and not set(value.attribute("dimensions")) & set(dimensions)


def _is_sum(reduction: MutableInstruction) -> bool:
    return (
        reduction.opcode == "reduce"
        and len(reduction.operands) == 2
        and combiner(reduction) == "add"
        and is_zero(reduction.operands[1])
    )


def _is_mean(
    value: MutableInstruction, values: MutableInstruction, dimensions: tuple[int, ...]
) -> bool:
    if value.opcode not in ("divide", "multiply"):
        return False
    total, count = value.operands
    number = scalar(count)
    total = unspread(total)
    if number is None or not _sums_up(total, values, dimensions):
        return False
    elements = float(_count(values, dimensions))
    expected = elements if value.opcode == "divide" else 1 / elements
    return math.isclose(float(number), expected, rel_tol=1e-6)


def _sums_up(
    reduction: MutableInstruction, values: MutableInstruction, dimensions: tuple[int, ...]
) -> bool:
    return (
        _is_sum(reduction)
        and reduction.operands[0] is values
        and reduction.attribute("dimensions") == dimensions
    )


def _count(values: MutableInstruction, dimensions: tuple[int, ...]) -> int:
    return math.prod(values.shape.dimensions[dimension] or 1 for dimension in dimensions)


def _remove_sum(reduction: MutableInstruction) -> None:
    zero = f"zero = {array(reduction.shape.element_type, ())} constant(0)"
    put(
        reduction, f"{zero}\nROOT zeros = {text_of(reduction)} broadcast(zero), dimensions={{}}", []
    )


def _rewrite(reduction: MutableInstruction, values: MutableInstruction) -> None:
    dimensions = reduction.attribute("dimensions")
    kind, result = values.shape.element_type, text_of(reduction)
    over = f"dimensions={integers(dimensions)}, to_apply=add"
    put(
        reduction,
        f"""
        squares = {text_of(values)} multiply(%p0, %p0)
        zero = {array(kind, ())} constant(0)
        total = {result} reduce(%p0, zero), {over}
        of_squares = {result} reduce(squares, zero), {over}
        squared = {result} multiply(total, total)
        count = {array(kind, ())} constant({_count(values, dimensions)})
        counts = {result} broadcast(count), dimensions={{}}
        of_mean = {result} divide(squared, counts)
        difference = {result} subtract(of_squares, of_mean)
        zeros = {result} broadcast(zero), dimensions={{}}
        ROOT positive = {result} maximum(difference, zeros)
        """,
        [values],
        reducer("add", kind),
    )
