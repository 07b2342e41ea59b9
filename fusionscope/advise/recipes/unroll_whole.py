"""A short loop of steps with matrix products, on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.loops import callee
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.advise.recipes.unroll_loop import ALL, UnrollLoop
from fusionscope.graph.mutable import MutableModule

_EXAMPLE = """
def program(points, labels, position, momentum):
    def potential(position):
        return jnp.sum(jnp.logaddexp(0.0, -labels * (points @ position)))

    def leapfrog(_, state):
        position, momentum = state
        momentum -= 0.005 * jax.grad(potential)(position)
        position += 0.01 * momentum
        return position, momentum - 0.005 * jax.grad(potential)(position)

    return lax.fori_loop(0, 10, leapfrog, (position, momentum){unroll})
"""


@dataclass(frozen=True, slots=True)
class UnrollWhole(UnrollLoop):
    times: int = ALL
    id: ClassVar = "unroll-whole"
    title: ClassVar = "all steps of a short loop with products in one (`unroll=True`)"
    what: ClassVar = (
        "A `scan` or `fori_loop` of 2 to 32 steps with matrix products in each. All steps become "
        "one, as with `unroll=True`."
    )
    why: ClassVar = (
        "A step often begins by computing what the previous step has just computed, such as the "
        "gradient in a leapfrog integrator. Without the loop, the compiler computes it once. "
        "Elementwise operations of consecutive steps become one kernel."
    )
    backfires: ClassVar = (
        "Compilation takes longer with each step. A loop without products is one kernel on a CPU, "
        "and took up to twice as long to run when it was unrolled."
    )
    backends: ClassVar = frozenset({"cpu"})
    example: ClassVar = Example(
        ("f32[1000,32]", "f32[1000]", "f32[32]", "f32[32]"),
        _EXAMPLE.format(unroll=""),
        _EXAMPLE.format(unroll=", unroll=True"),
    )

    @property
    def variants(self) -> tuple[Recipe, ...]:
        return (self,)

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for site in UnrollLoop.find(self, graph, backend):
            if callee(site.at, "body").opcodes["dot"]:
                yield site
