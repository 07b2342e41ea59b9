"""Remainders of floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import FLOATS, put, scalar, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule


@dataclass(frozen=True, slots=True)
class DivideForRemainder(Recipe):
    """An array has at least ``least_elements``."""

    least_elements: int = 1024
    id: ClassVar = "divide-for-remainder"
    title: ClassVar = "a remainder as a division, a truncation and a difference"
    what: ClassVar = (
        "`jnp.mod`, `%` or `lax.rem` of an array of floats by a constant, such as the size of a "
        "periodic box: `x - c * trunc(x / c)` instead."
    )
    why: ClassVar = (
        "A CPU calls a function for each element, which divides step by step so that the result is "
        "exact, and the loop around it is not vectorized. One instruction divides several elements."
    )
    backfires: ClassVar = (
        "The result is rounded as `x` is, so it is less exact for values much larger than the "
        "constant. For a value just below a multiple of it, `lax.rem` can give almost zero instead "
        "of almost the constant; `jnp.mod` adds the constant to a negative remainder, so it cannot."
    )
    backends: ClassVar = frozenset({"cpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[4096,64]",),
        """
def program(distances):
    return jnp.mod(distances + 1.5, 3.0) - 1.5
""",
        """
def program(distances):
    shifted = distances + 1.5
    return shifted - 3.0 * jnp.floor(shifted / 3.0) - 1.5
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if (
                instruction.opcode == "remainder"
                and instruction.shape.element_type in FLOATS
                and (instruction.shape.element_count or 0) >= self.least_elements
                and scalar(instruction.operands[1]) is not None
            ):
                yield Site(instruction, partial(_divide, instruction))


def _divide(remainder: MutableInstruction) -> None:
    shape = text_of(remainder)
    lines = f"""
        quotient = {shape} divide(%p0, %p1)
        magnitude = {shape} abs(quotient)
        whole = {shape} floor(magnitude)
        direction = {shape} sign(quotient)
        times = {shape} multiply(whole, direction)
        multiple = {shape} multiply(times, %p1)
        ROOT rest = {shape} subtract(%p0, multiple)
        """
    put(remainder, lines, remainder.operands)
