"""A linear recurrence in a loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.directions import Direction
from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.independence import Independence, move_out
from fusionscope.advise.recipes.loops import find_loops
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.advise.recipes.recurrences import Recurrence
from fusionscope.graph.mutable import MutableModule


@dataclass(frozen=True, slots=True)
class AssociativeScan(Recipe):
    """In a loop that remains, a recurrence of fewer ``elements`` is not worth another kernel. The
    values of all steps may have ``most_bytes``.
    """

    elements: int = 1024
    most_bytes: int = 1 << 28
    id: ClassVar = "associative-scan"
    title: ClassVar = "a linear recurrence as `jax.lax.associative_scan`"
    what: ClassVar = (
        "A `scan` or `fori_loop` that carries an array which each step multiplies by, and adds to "
        "it, what does not depend on it: state space layers, decaying averages, advantages, "
        "running sums; also running maxima and minima; also up to 64 numbers that each step "
        "multiplies by a matrix and divides by their sum, such as those of a filter of a hidden "
        "Markov model. All steps are computed in about twice the logarithm of their number. What "
        "else depends on the step alone, or on the recurrence, is computed for all steps at once; "
        "a loop remains for the rest, if there is any."
    )
    why: ClassVar = (
        "On a GPU each step launches the kernels of its body, and waits for the step before. Of "
        "256 steps 16 kernels remain, over many steps each."
    )
    backfires: ClassVar = (
        "The numbers are combined in another order, so they are rounded differently, and more so "
        "after many steps of a factor near one. A product of the factors of many steps may "
        "overflow where the steps themselves do not. Where each step divides by a sum, a floor of "
        "at most 1e-10 is left out of the matrices: no more than rounding, unless numbers are "
        "negative. The values of all steps are stored, at most 256 MiB here: more would take "
        "longer to write and read than the steps save. On a CPU, which launches nothing, the "
        "additional work takes time."
    )
    backends: ClassVar = frozenset({"gpu", "tpu"})
    tolerance: ClassVar = 1e-4
    example: ClassVar = Example(
        ("f32[256,4096]", "f32[4096]", "f32[4096]"),
        """
def program(inputs, factors, start):
    def step(state, row):
        state = jnp.tanh(factors) * state + row
        return state, state

    return lax.scan(step, start, inputs)[1]
""",
        """
def program(inputs, factors, start):
    def both(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    factors = jnp.tanh(factors)
    inputs = inputs.at[0].add(factors * start)
    all_factors = jnp.broadcast_to(factors, inputs.shape)
    return lax.associative_scan(both, (all_factors, inputs))[1]
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for loop in find_loops(graph):
            independence = Independence(loop, has_recurrences=True)
            if self._is_worth(independence):
                yield Site(loop.instruction, partial(move_out, independence))

    def _is_worth(self, independence: Independence) -> bool:
        sizes = [
            state.result.shape.element_count or 0
            for state in independence.states.values()
            if isinstance(state, Recurrence | Direction)
        ]
        return (
            bool(sizes)
            and (independence.is_complete or max(sizes) >= self.elements)
            and independence.bytes_stacked() <= self.most_bytes
        )
