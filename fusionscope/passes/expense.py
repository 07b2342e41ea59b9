"""Determines which operations are too expensive to compute twice.

Source: xla/service/instruction_fusion.cc, IsExpensive.
"""

from __future__ import annotations

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import COMPLEX, INTEGRAL, is_scalar_constant

_CHEAP = frozenset(
    """add and bitcast bitcast-convert broadcast ceil clamp compare complex concatenate constant
    convert copy copy-done copy-start count-leading-zeros dynamic-reshape dynamic-slice
    dynamic-update-slice floor get-tuple-element imag infeed iota is-finite maximum minimum mulhi
    multiply negate not opt-barrier or outfeed pad partition-id popcnt real reduce-precision
    replica-id reshape reverse round-nearest-afz round-nearest-even select shift-left
    shift-right-arithmetic shift-right-logical slice stochastic-convert subtract transpose tuple
    xor""".split()
)
_EXPENSIVE_IF_COMPLEX = frozenset({"abs", "cosine", "sign", "sine", "tan"})


def is_expensive(instruction: MutableInstruction) -> bool:
    """Return whether fusion passes avoid computing an operation more than once. Integer division by
    a constant is a multiplication and a shift, and so is cheap.
    """
    opcode = instruction.opcode
    if opcode in _CHEAP:
        return False
    element_type = instruction.shape.element_type
    if opcode in _EXPENSIVE_IF_COMPLEX:
        return element_type in COMPLEX
    if opcode in ("divide", "remainder"):
        return element_type not in INTEGRAL or not is_scalar_constant(instruction.operands[1])
    return True
