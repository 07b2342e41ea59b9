"""Sums of the same values over some dimensions, and over more of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    combiner,
    integers,
    is_neutral,
    put,
    reducer,
    text_of,
)
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule


class TotalOfRows(Recipe):
    __slots__ = ()
    id: ClassVar = "total-of-rows"
    title: ClassVar = "a total computed from the sums of rows, behind a barrier"
    what: ClassVar = (
        "The same values are reduced over some dimensions, and by the same operation over these "
        "and more, such as the sums of rows and the total. The total is computed from the sums of "
        "rows. The barrier prevents the compiler from combining the two steps again."
    )
    why: ClassVar = (
        "Values that two reductions read go through memory. If one reduction is left, they end in "
        "it."
    )
    backfires: ClassVar = (
        "On a GPU the compiler makes one kernel of both reductions, and nothing changes. The sum "
        "is in another order, so it is rounded differently."
    )
    backends: ClassVar = frozenset({"cpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[2048,2048]",),
        """
def program(values):
    grown = jnp.exp(values)
    return grown.sum(axis=1), grown.sum()
""",
        """
def program(values):
    rows = lax.optimization_barrier(jnp.exp(values).sum(axis=1))
    return rows, rows.sum()
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            rows = _rows(instruction)
            if rows is not None:
                yield Site(instruction, partial(_rewrite, instruction, rows))


def _is_plain(reduction: MutableInstruction) -> bool:
    return reduction.opcode == "reduce" and len(reduction.operands) == 2 and is_neutral(reduction)


def _rows(total: MutableInstruction) -> MutableInstruction | None:
    """Return the reduction from which ``total`` can be taken: the one over the most dimensions."""
    if not _is_plain(total) or total.operands[0].opcode == "parameter":
        return None
    over = set(total.attribute("dimensions"))
    reductions = [
        user
        for user in total.operands[0].users
        if _is_plain(user)
        and set(user.attribute("dimensions")) < over
        and combiner(user) == combiner(total)
    ]
    return max(
        reductions, key=lambda reduction: len(reduction.attribute("dimensions")), default=None
    )


def _rewrite(total: MutableInstruction, rows: MutableInstruction) -> None:
    values, start = total.operands
    reduced = rows.attribute("dimensions")
    remaining = [dimension for dimension in range(values.shape.rank) if dimension not in reduced]
    over = [
        place
        for place, dimension in enumerate(remaining)
        if dimension in total.attribute("dimensions")
    ]
    opcode = combiner(total) or ""
    way = f"dimensions={integers(over)}, to_apply={opcode}"
    put(
        total,
        f"""
        kept = {text_of(rows)} opt-barrier(%p0)
        ROOT total = {text_of(total)} reduce(kept, %p1), {way}
        """,
        [rows, start],
        reducer(opcode, total.shape.element_type),
    )
