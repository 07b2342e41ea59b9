"""A barrier between operations that could be one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune

_BARRIER = "opt-barrier"
_WANTED = ("checkpoint", "remat")  # in the names of operations around a barrier that saves memory


class RemoveBarrier(Recipe):
    __slots__ = ()
    id: ClassVar = "remove-barrier"
    title: ClassVar = "no `optimization_barrier` between operations that could be one kernel"
    what: ClassVar = (
        "A value passes a barrier, and an operation behind it reads the value. The barrier is "
        "removed, unless `jax.checkpoint` inserted it."
    )
    why: ClassVar = (
        "Nothing is fused across a barrier: a value that passes it is written to memory and read "
        "again."
    )
    backfires: ClassVar = (
        "Barriers have a purpose: they prevent values from being computed in several kernels, "
        "keep operations in order, and keep memory from being held too long. If one prevents "
        "recomputation, removing it saves launches and costs time."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    tolerance: ClassVar = 1e-6  # a kernel of its own may compute a sine in another way
    example: ClassVar = Example(
        ("f32[2048,2048]",),
        """
def program(values):
    squeezed = lax.optimization_barrier(jnp.tanh(values) * 2)
    return jnp.exp(squeezed) + 1
""",
        """
def program(values):
    squeezed = jnp.tanh(values) * 2
    return jnp.exp(squeezed) + 1
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            name = instruction.op_name or ""
            if instruction.opcode == _BARRIER and not any(word in name for word in _WANTED):
                yield Site(instruction, partial(_remove, instruction))


def _remove(barrier: MutableInstruction) -> None:
    (value,) = barrier.operands
    if value.opcode == "tuple":
        for element in list(barrier.users):
            if element.opcode == "get-tuple-element":
                replace_and_prune(element, value.operands[element.attribute("index")])
    if barrier.parent is not None:
        replace_and_prune(barrier, value)
