"""A reduction of many rows to a few short ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    array,
    combiner,
    integers,
    is_neutral,
    put,
    reducer,
    sizes_of,
    text_of,
)
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule

_COUNTS = (32, 64, 16)  # of parts, in the order in which they are tried


@dataclass(frozen=True, slots=True)
class SumInParts(Recipe):
    """``parts`` is about how many sums become one. With fewer ``rows`` for each result, or fewer
    ``elements`` in all, the second step costs more than it gains; more than ``most_rows`` the
    compiler splits itself; and more ``results`` occupy the device as they are.
    """

    parts: int = 32
    rows: int = 512
    most_rows: int = 4096
    elements: int = 32_768
    results: int = 2048
    id: ClassVar = "sum-in-parts"
    title: ClassVar = "a sum over rows as a sum of the sums of parts, with a barrier between"
    what: ClassVar = (
        "A sum, product, maximum or minimum of many rows, such as the gradient of a bias. The rows "
        "are reduced in parts, and the results of the parts once more: 16, 32 or 64 parts, or the "
        "nearest number that divides the rows. The barrier prevents the compiler from combining "
        "the two steps again."
    )
    why: ClassVar = (
        "A block of threads computes some columns, and reads all rows of them. If the rows are "
        "short, a few blocks do everything, and most of the device waits. With parts there are so "
        "many more of them."
    )
    backfires: ClassVar = (
        "The second step is one more kernel: where the rows are few, or long enough to occupy the "
        "device, it costs more than is gained. The sum is in another order, so it is rounded "
        "differently. A product with a row of ones is no way around the barrier: the compiler "
        "makes the same sum of it."
    )
    backends: ClassVar = frozenset({"gpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[4096,128]",),
        """
def program(gradients):
    return gradients.sum(axis=0)
""",
        """
def program(gradients):
    parts = gradients.reshape(32, 128, 128).sum(axis=1)
    return lax.optimization_barrier(parts).sum(axis=0)
""",
    )

    @property
    def variants(self) -> tuple[Recipe, ...]:
        return tuple(replace(self, parts=count) for count in _COUNTS)

    @property
    def words(self) -> str:
        return f"a sum over rows as a sum of {self.parts} parts, with a barrier between"

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if instruction.opcode == "reduce" and self._is_slow(instruction):
                counts = _split(instruction, self.parts)
                if math.prod(counts.values()) * 2 >= self.parts:
                    yield Site(instruction, partial(_rewrite, instruction, counts))

    def _is_slow(self, reduction: MutableInstruction) -> bool:
        values, over = reduction.operands[0].shape, reduction.attribute("dimensions")
        return (
            len(reduction.operands) == 2
            and values.rank - 1 not in over
            and self.rows <= sizes_of(values, over) <= self.most_rows
            and values.element_count >= self.elements
            and reduction.shape.element_count <= self.results
            and is_neutral(reduction)
        )


def _split(reduction: MutableInstruction, parts: int) -> dict[int, int]:
    """Return the number of parts of each reduced dimension, about ``parts`` in all: the first
    dimensions are split before the later ones.
    """
    counts: dict[int, int] = {}
    for dimension in sorted(reduction.attribute("dimensions")):
        size = sizes_of(reduction.operands[0].shape, [dimension])
        counts[dimension] = _nearest_divisor(size, parts)
        parts //= counts[dimension]
    return counts


def _nearest_divisor(size: int, number: int) -> int:
    divisors = (divisor for divisor in range(1, 2 * number) if size % divisor == 0)
    return min(divisors, key=lambda divisor: abs(divisor - number), default=1)


def _rewrite(reduction: MutableInstruction, counts: dict[int, int]) -> None:
    values, start = reduction.operands
    sizes: list[int] = []  # each reduced dimension as its parts, and what is in a part
    outer: list[int] = []
    inner: list[int] = []
    for dimension in range(values.shape.rank):
        size = sizes_of(values.shape, [dimension])
        if dimension in counts:
            outer.append(len(sizes))
            sizes.append(counts[dimension])
            inner.append(len(sizes))
        sizes.append(size // counts.get(dimension, 1))
    remaining = [place for place in range(len(sizes)) if place not in inner]
    over = [remaining.index(place) for place in outer]
    kind, opcode = values.shape.element_type, combiner(reduction) or ""
    over_parts = f"dimensions={integers(over)}, to_apply={opcode}"
    of_parts = array(kind, [sizes[place] for place in remaining])
    put(
        reduction,
        f"""
        rows = {array(kind, sizes)} reshape(%p0)
        parts = {of_parts} reduce(rows, %p1), dimensions={integers(inner)}, to_apply={opcode}
        apart = {of_parts} opt-barrier(parts)
        ROOT all = {text_of(reduction)} reduce(apart, %p1), {over_parts}
        """,
        [values, start],
        reducer(opcode, kind),
    )
