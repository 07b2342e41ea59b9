"""What the rules take for granted of an instruction, beyond what reading a module checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableInstruction

# The compiler nests two or three; rules that look into fusions do so level by level.
_DEEPEST = 8


def find_problem(instruction: MutableInstruction) -> str | None:
    """What an instruction lacks that its opcode cannot be without, in words."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "fusion":
        count = len(instruction.fused.parameters)
        if count != len(operands):
            return f"has {len(operands)} operands, but {instruction.fused.name} {count} parameters"
        if instruction.fused.nesting >= _DEEPEST:
            return f"holds fusions nested more than {_DEEPEST} deep"
    return None
