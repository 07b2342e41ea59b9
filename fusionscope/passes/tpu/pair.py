"""A pair as the rules for TPUs see it."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.hlo import Instruction
from fusionscope.hlo.window import read_window


@dataclass(frozen=True, slots=True)
class TpuPair:
    """A producer and a consumer in the stage before fusion. ``slots`` are the operands of the
    consumer that are the producer's value, or a view of it.
    """

    producer: Instruction
    consumer: Instruction
    slots: tuple[int, ...]


def has_one_element(instruction: Instruction) -> bool:
    """Return whether the result is an array of one element."""
    return instruction.shape.is_array and instruction.shape.element_count == 1


def keeps_minor_dimensions(copy: Instruction, count: int) -> bool:
    """Return whether a copy leaves the ``count`` minor-most dimensions in their order: what is next
    to each other in a tile stays so.
    """
    layouts = [each.shape.layout for each in (copy, *copy.operands)]
    minor = [each.minor_to_major[:count] for each in layouts if each is not None]
    return len(minor) == len(layouts) == 2 and minor[0] == minor[1]


def has_window_within_tiles(instruction: Instruction) -> bool:
    """Return whether it is a reduce-window along one of the two minor-most dimensions of what it
    reads.
    """
    if instruction.opcode != "reduce-window":
        return False
    layout = instruction.operands[0].shape.layout
    window = read_window(instruction.attributes.get("window", ""))
    if layout is None:
        return False
    return any(window[place].size > 1 for place in layout.minor_to_major[:2])


def is_gather(instruction: Instruction) -> bool:
    """Return whether a pass before fusion has made it the kernel of a gather."""
    return _is_kernel(instruction, "gather")


def is_scatter(instruction: Instruction) -> bool:
    """Return whether a pass before fusion has made it the kernel of a scatter."""
    return _is_kernel(instruction, "scatter")


def _is_kernel(instruction: Instruction, opcode: str) -> bool:
    return instruction.opcode == "fusion" and any(
        inside.opcode == opcode for called in instruction.called for inside in called.instructions
    )
