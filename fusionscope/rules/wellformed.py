"""What the rules take for granted of an instruction, beyond what reading a module checks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.rules.graph import MutableInstruction

# How many computations they call, how many operands they have at least, and the attribute that the
# rules read.
_CALLS = {
    "call": 1,
    "fusion": 1,
    "map": 1,
    "reduce": 1,
    "reduce-window": 1,
    "scatter": 1,
    "select-and-scatter": 2,
    "sort": 1,
    "while": 2,
}
_OPERANDS = {"concatenate": 1, "dynamic-slice": 2, "dynamic-update-slice": 3, "dot": 2}
_NEEDS = {
    "concatenate": "dimensions=",
    "get-tuple-element": "index=",
    "pad": "padding=",
    "slice": "slice=",
}
# The compiler nests two or three; rules that look into fusions do so level by level.
_DEEPEST = 8


def find_problem(instruction: MutableInstruction) -> str | None:
    """What an instruction lacks that its opcode cannot be without, in words."""
    opcode, operands = instruction.opcode, instruction.operands
    text = instruction.attributes_text
    if len(instruction.called) < _CALLS.get(opcode, 0):
        return f"calls {len(instruction.called)} computations, expected {_CALLS[opcode]}"
    if len(operands) < _OPERANDS.get(opcode, 0):
        return f"has {len(operands)} operands, expected {_OPERANDS[opcode]} or more"
    if _NEEDS.get(opcode, "") not in text:
        return f"has no {_NEEDS[opcode]}"
    if opcode == "fusion":
        count = len(instruction.fused.parameters)
        if count != len(operands):
            return f"has {len(operands)} operands, but {instruction.fused.name} {count} parameters"
        if instruction.fused.nesting >= _DEEPEST:
            return f"holds fusions nested more than {_DEEPEST} deep"
    if opcode == "slice" and len(re.findall(r"\[[\d:]+\]", text)) != instruction.shape.rank:
        return f"does not slice each of its {instruction.shape.rank} dimensions"
    if opcode == "concatenate" and not _are_below(
        instruction.attribute("dimensions"), instruction.shape.rank
    ):
        return f"has dimensions={instruction.attributes['dimensions']}, which it has not"
    if opcode == "dot":
        for side, operand in zip(("lhs", "rhs"), operands, strict=False):
            for what in ("batch", "contracting"):
                dimensions = instruction.attribute(f"{side}_{what}_dims")
                if not _are_below(dimensions or (), operand.shape.rank):
                    return f"has {side}_{what}_dims that {operand.name} has not"
    return None


def _are_below(dimensions: object, rank: int) -> bool:
    return isinstance(dimensions, tuple) and all(0 <= each < rank for each in dimensions)
