"""Determines which operations are too expensive to compute twice on a CPU.

Source: xla/service/cpu/cpu_instruction_fusion.cc, IsExpensive.
"""

from __future__ import annotations

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import INTEGRAL, is_scalar_constant
from fusionscope.passes import expense


def is_expensive(instruction: MutableInstruction) -> bool:
    """Return whether the CPU's fusion pass avoids computing an operation more than once."""
    element_type = instruction.shape.element_type
    if instruction.opcode == "convert":  # rounding to bf16 checks for NaNs
        return element_type == "bf16" and instruction.operands[0].shape.element_type == "f32"
    if instruction.opcode in ("divide", "remainder"):
        # A bug of the compiler: it means the divisor, but checks the dividend.
        return element_type not in INTEGRAL or not is_scalar_constant(instruction.operands[0])
    return expense.is_expensive(instruction)
