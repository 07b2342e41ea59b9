"""The formula of GELU that becomes part of a call of cuBLASLt: x · 0.5 · (1 + tanh(√(2/π) · (x +
0.044715 · x³))), with products and sums in this order.

Source: GemmRewriterVisitor::HandleMultiply in xla/backends/gpu/transforms/gemm_rewriter.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sqrt

from fusionscope.graph.properties import number_of
from fusionscope.hlo import Instruction

# How far a constant may be off, as a share of twice its size, by its type.
_TOLERANCES = {"f16": 2**-3, "bf16": 1.0, "f32": 2**-16, "f64": 2**-45}
_EXACTLY = 0.0


@dataclass(frozen=True, slots=True)
class GeluProblem:
    """What is different ``at`` an instruction."""

    words: str
    at: Instruction


def find_gelu_problem(distribution: Instruction, value: Instruction) -> GeluProblem | None:
    """Return why ``value`` times ``distribution`` is not the formula, from the outside in; None if
    it is.
    """
    return next(_problems(distribution, value), None)


def _problems(distribution: Instruction, value: Instruction) -> Iterator[GeluProblem]:
    yield from _read_once(distribution)
    total = _beside_constant(distribution, "multiply", 0.5)
    if total is None:
        yield GeluProblem("is not half of a sum", distribution)
        return
    tangent = _beside_constant(total, "add", 1.0)
    if tangent is None or tangent.opcode != "tanh":
        yield GeluProblem("is not one plus a hyperbolic tangent", total)
        return
    yield from _read_once(tangent)
    scaled = tangent.operands[0]
    yield from _read_once(scaled)
    polynomial = _beside_constant(scaled, "multiply", sqrt(2 / pi), _TOLERANCES)
    if polynomial is None:
        yield GeluProblem("is not scaled by the root of 2/π", scaled)
        return
    yield from _read_once(polynomial)
    term = _beside(polynomial, "add", value)
    if term is None:
        yield GeluProblem("is not the product plus a multiple of its cube", polynomial)
        return
    yield from _read_once(term)
    cube = _beside_constant(term, "multiply", 0.044715, _TOLERANCES)
    if cube is None:
        yield GeluProblem("is not 0.044715 times a cube", term)
        return
    yield from _read_once(cube)
    square = _beside(cube, "multiply", value)
    if square is None or square.opcode != "multiply" or set(square.operands) != {value}:
        yield GeluProblem("is not the product times its square", cube)
        return
    yield from _read_once(square)


def _read_once(instruction: Instruction) -> Iterator[GeluProblem]:
    if len(instruction.users) > 1 or instruction.is_root:
        count = len(instruction.users) - 1 if len(instruction.users) > 1 else 1
        readers = "another operation reads it" if count == 1 else f"{count} others read it"
        yield GeluProblem(f"a part of GELU is needed elsewhere: {readers}", instruction)


def _beside(instruction: Instruction, opcode: str, value: Instruction) -> Instruction | None:
    """Return the operand beside ``value``."""
    if instruction.opcode != opcode or value not in instruction.operands:
        return None
    first, second = instruction.operands
    return second if first is value else first


def _beside_constant(
    instruction: Instruction, opcode: str, number: float, tolerances: dict[str, float] | None = None
) -> Instruction | None:
    """Return the operand beside a broadcast constant, which is ``number``, or near it."""
    if instruction.opcode != opcode:
        return None
    for position, operand in enumerate(instruction.operands):
        if operand.opcode == "broadcast" and operand.operands[0].opcode == "constant":
            constant = operand.operands[0]
            tolerance = (tolerances or {}).get(constant.shape.element_type, _EXACTLY)
            value = number_of(constant)
            if value is not None and _is_near(value, number, tolerance):
                return instruction.operands[1 - position]
    return None


def _is_near(value: float, number: float, tolerance: float) -> bool:
    return value == number or abs(value - number) < abs(value + number) * tolerance
