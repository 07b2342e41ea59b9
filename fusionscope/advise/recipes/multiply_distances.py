"""Squared distances between the vectors of two sets, by a matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    array,
    combiner,
    integers,
    is_zero,
    put,
    reducer,
    text_of,
)
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule


class Distances(NamedTuple):
    """Vectors whose distances are summed: ``x`` and ``y`` are matrices, of which ``x_along`` and
    ``y_along`` are the dimensions of the vectors. ``x_is_first`` is whether those of x are the
    first dimension of the result.
    """

    x: MutableInstruction
    y: MutableInstruction
    x_along: int
    y_along: int
    x_is_first: bool


@dataclass(frozen=True, slots=True)
class MultiplyDistances(Recipe):
    """``fewest`` is the least length of a vector, in elements."""

    fewest: int = 16
    id: ClassVar = "multiply-distances"
    title: ClassVar = "squared distances by a matrix product"
    what: ClassVar = (
        "The squared distances between all vectors of two sets, `((x[:, None] - y) ** 2).sum(-1)`, "
        "of at least 16 elements each. As `|x|² - 2 x·y + |y|²`, all but the lengths is one matrix "
        "product."
    )
    why: ClassVar = (
        "The difference is an operation for each pair of vectors and each of their elements, on "
        "the vector unit. A TPU multiplies matrices on a unit of its own that is many times as "
        "fast."
    )
    backfires: ClassVar = (
        "A small distance is the difference of large numbers: it is as wrong as those are in their "
        "last digits, and negative distances are cut off at 0. With the default precision of a "
        "TPU, the product has that of `bf16`; the recipe uses `precision='highest'`."
    )
    tolerance: ClassVar = 1e-5
    backends: ClassVar = frozenset({"tpu"})
    example: ClassVar = Example(
        ("f32[8192,64]", "f32[1024,64]"),
        """
def program(vectors, book):
    distances = ((vectors[:, None] - book) ** 2).sum(axis=-1)
    return distances.argmin(axis=-1)
""",
        """
def program(vectors, book):
    products = jnp.dot(vectors, book.T, precision="highest")
    lengths = (vectors**2).sum(axis=-1)[:, None] + (book**2).sum(axis=-1)
    distances = jnp.maximum(lengths - 2 * products, 0)
    return distances.argmin(axis=-1)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            distances = _distances(instruction)
            if distances is None:
                continue
            if (distances.x.shape.dimensions[distances.x_along] or 0) >= self.fewest:
                yield Site(instruction, partial(_rewrite, instruction, distances))


def _distances(total: MutableInstruction) -> Distances | None:
    """Return the vectors of which ``total`` has the squared distances, None if it has others."""
    if total.opcode != "reduce" or len(total.operands) != 2 or combiner(total) != "add":
        return None
    square, start = total.operands
    if square.opcode != "multiply" or len(set(square.operands)) != 1 or not is_zero(start):
        return None
    difference, over = square.operands[0], tuple(total.attribute("dimensions"))
    if difference.opcode != "subtract" or difference.shape.rank != 3 or len(over) != 1:
        return None
    if difference.shape.element_type != "f32" or total.shape.element_type != "f32":
        return None
    x, y = difference.operands
    if x.opcode != "broadcast" or y.opcode != "broadcast":
        return None
    of_x, of_y = (tuple(side.attribute("dimensions")) for side in (x, y))
    if len(of_x) != 2 or len(of_y) != 2 or {*of_x} & {*of_y} != {*over}:
        return None
    x_free, y_free = ({*places} - {*over} for places in (of_x, of_y))
    return Distances(
        x.operands[0],
        y.operands[0],
        of_x.index(over[0]),
        of_y.index(over[0]),
        min(x_free) < min(y_free),
    )


def _rewrite(total: MutableInstruction, distances: Distances) -> None:
    x, y, x_along, y_along, x_is_first = distances
    of_x, of_y = x.shape.dimensions[1 - x_along], y.shape.dimensions[1 - y_along]
    whole = text_of(total)
    left, right = ("%p0", "%p1") if x_is_first else ("%p1", "%p0")
    along = (x_along, y_along) if x_is_first else (y_along, x_along)
    put(
        total,
        f"""
        products = {whole} dot({left}, {right}), lhs_contracting_dims={integers(along[:1])}, \
rhs_contracting_dims={integers(along[1:])}, operand_precision={{highest,highest}}
        two = f32[] constant(2)
        twos = {whole} broadcast(two), dimensions={{}}
        doubled = {whole} multiply(products, twos)
        zero = f32[] constant(0)
        zeros = {whole} broadcast(zero), dimensions={{}}
        x_squares = {text_of(x)} multiply(%p0, %p0)
        x_lengths = {array("f32", (of_x,))} reduce(x_squares, zero), \
dimensions={integers((x_along,))}, to_apply=add
        of_x = {whole} broadcast(x_lengths), dimensions={integers((1 - x_is_first,))}
        y_squares = {text_of(y)} multiply(%p1, %p1)
        y_lengths = {array("f32", (of_y,))} reduce(y_squares, zero), \
dimensions={integers((y_along,))}, to_apply=add
        of_y = {whole} broadcast(y_lengths), dimensions={integers((int(x_is_first),))}
        lengths = {whole} add(of_x, of_y)
        rest = {whole} subtract(lengths, doubled)
        ROOT distances = {whole} maximum(rest, zeros)
        """,
        [x, y],
        reducer("add", "f32"),
    )
