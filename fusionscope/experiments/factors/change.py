"""What a change of a cut is, and how operations are put into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from fusionscope.errors import UnusableInput
from fusionscope.experiments.cut import Cut, OpenCut, replace_with_parameter
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo.shape import Shape


@dataclass(frozen=True, slots=True)
class Change:
    """A cut with one thing changed, ``what``, which was ``before`` and is ``after``."""

    what: str
    before: str
    after: str
    cut: Cut


class Factor(Protocol):
    """One thing that can be changed about a cut. ``name`` is what an answer calls it."""

    @property
    def name(self) -> str: ...

    def changes(self, cut: Cut) -> Iterator[Change]:
        """Yield the changes of ``cut`` by this factor, one at a time."""


def changes_of(factor: Factor, cut: Cut) -> list[Change]:
    """Return the changes that the pair survives."""
    try:
        return list(factor.changes(cut))
    except UnusableInput:
        return []


def an(opcode: str) -> str:
    return f"{'an' if opcode[0] in 'aeiou' else 'a'} {opcode}"


def listed(instructions: list[MutableInstruction]) -> str:
    opcodes = dict.fromkeys(instruction.opcode for instruction in instructions)
    words = [
        f"{count} {opcode}"
        if (count := sum(e.opcode == opcode for e in instructions)) > 1
        else opcode
        for opcode in opcodes
    ]
    return ", ".join(words[:3]) + (", …" if len(words) > 3 else "")


def multiplied(computation: MutableComputation, shape: Shape) -> MutableInstruction:
    """Return a cheap operation of two new parameters of ``shape``, an array."""
    opcode = "and" if shape.element_type == "pred" else "multiply"
    return computation.make(opcode, shape, [computation.make_parameter(shape) for _ in range(2)])


def added(value: MutableInstruction) -> MutableInstruction:
    """Return a cheap operation of an array and a new parameter, which no simplification removes."""
    opcode = "or" if value.shape.element_type == "pred" else "add"
    addend = value.computation.make_parameter(value.shape)
    return value.computation.make(opcode, value.shape, [value, addend])


def concatenated(
    computation: MutableComputation, shape: Shape, dimension: int, count: int
) -> MutableInstruction:
    """Return a concatenate of ``count`` new parameters, of ``shape``."""
    sizes = shape.dimensions
    whole, operands = sizes[dimension] or 0, []
    for number in range(count):
        part = whole // count + (number < whole % count)
        parted = (*sizes[:dimension], part, *sizes[dimension + 1 :])
        operands.append(computation.make_parameter(replace(shape, dimensions=parted)))
    return computation.make("concatenate", shape, operands, f", dimensions={{{dimension}}}")


def with_producer(opened: OpenCut, producer: MutableInstruction) -> Cut:
    take_place(opened, opened.producer, producer)
    return opened.close()


def take_place(opened: OpenCut, old: MutableInstruction, new: MutableInstruction) -> None:
    """Put ``new`` in the place of ``old``. What expects the shape of ``old`` gets a parameter."""
    if new.shape.dimensions != old.shape.dimensions:
        for user in [user for user in old.users if user not in (new, opened.entry.root)]:
            replace_with_parameter(old, user)
    is_read = any(user is not new for user in old.users)
    opened.entry.replace_uses(old, new)
    opened.set_results(opened.results if is_read else [*opened.results, new])
    if opened.producer is old:
        opened.producer = new
    if opened.consumer is old:
        opened.consumer = new
