"""Determines which operations are too expensive to compute twice on a CPU.

Source: xla/service/cpu/cpu_instruction_fusion.cc, IsExpensive.
"""

from __future__ import annotations

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import INTEGRAL, is_scalar_constant
from fusionscope.passes import expense


def is_expensive(instruction: MutableInstruction, *, rounding: bool) -> bool:
    """Return whether the CPU's fusion pass avoids computing an operation more than once. The
    version decides whether ``rounding`` to bf16, which checks for NaNs, is such an operation.
    """
    if instruction.opcode == "convert":
        return rounding and is_rounding(instruction)
    element_type = instruction.shape.element_type
    if instruction.opcode in ("divide", "remainder"):
        # A bug of the compiler: it means the divisor, but checks the dividend.
        return element_type not in INTEGRAL or not is_scalar_constant(instruction.operands[0])
    return expense.is_expensive(instruction)


def is_rounding(instruction: MutableInstruction) -> bool:
    """Return whether it rounds from f32 to bf16."""
    return (
        instruction.opcode == "convert"
        and instruction.shape.element_type == "bf16"
        and instruction.operands[0].shape.element_type == "f32"
    )
