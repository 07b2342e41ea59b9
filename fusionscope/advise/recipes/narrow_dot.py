"""Operands of a dot that are converted to a wider type first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand

_NARROW = frozenset({"bf16", "f16"})


class NarrowDot(Recipe):
    __slots__ = ()
    id: ClassVar = "narrow-dot"
    title: ClassVar = "a dot of narrow types with a wide result, instead of converted operands"
    what: ClassVar = (
        "Both operands of a dot are converted from bf16 or f16 to f32. The dot reads them "
        "without conversion and has a result of f32, as with `preferred_element_type`."
    )
    why: ClassVar = (
        "Each conversion writes its operand once more, twice as large. The products are the same: "
        "the product of two narrow numbers is exact in f32."
    )
    backfires: ClassVar = (
        "On a GPU nothing changes: the compiler looks through the conversions itself. A CPU "
        "without instructions for bf16 may convert inside the library."
    )
    backends: ClassVar = frozenset({"cpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("bf16[512,512]", "bf16[512,512]"),
        """
def program(inputs, weights):
    return inputs.astype(jnp.float32) @ weights.astype(jnp.float32)
""",
        """
def program(inputs, weights):
    return jnp.dot(inputs, weights, preferred_element_type=jnp.float32)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if instruction.opcode == "dot" and instruction.shape.element_type == "f32":
                types = [_narrow_type(operand) for operand in instruction.operands]
                if types[0] is not None and types[0] == types[1]:
                    yield Site(instruction, partial(_rewrite, instruction))


def _narrow_type(value: MutableInstruction) -> str | None:
    """Return the type before the conversion."""
    if value.opcode != "convert":
        return None
    kind = value.operands[0].shape.element_type
    return kind if kind in _NARROW else None


def _rewrite(dot: MutableInstruction) -> None:
    for operand in dict.fromkeys(dot.operands):
        replace_operand(dot, operand, operand.operands[0])
