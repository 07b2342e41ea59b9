"""Linear recurrences in loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from fusionscope.hlo import Computation, Instruction

_LINEAR = frozenset(
    """add bitcast broadcast concatenate convert copy imag negate pad real reshape reverse slice
    subtract transpose""".split()
)


@dataclass(frozen=True, slots=True)
class Dependence:
    """The elements of the state that a value depends on, as bits: on all, on those in whose
    elements it is linear, and on those of them that it multiplies with something.
    """

    all: int = 0
    linear: int = 0
    scaled: int = 0


Value: TypeAlias = "Dependence | tuple[Value, ...]"
_NONE = Dependence()


def is_recurrence(loop: Instruction) -> bool:
    """Return whether a loop computes ``h = a * h + b``: a step changes elements of the state that
    are floating-point numbers, and each is linear in its own elements. What they are multiplied
    with and what is added may depend on other elements, but not in a circle.
    """
    body = loop.computation.module.by_name.get(loop.attributes.get("body", "").lstrip("%"))
    if body is None or body.root.opcode != "tuple":
        return False
    changed = _changed(body)
    state = tuple(
        Dependence(1 << number, 1 << number) if number in changed else _NONE
        for number in range(len(body.root.operands))
    )
    result = _evaluate(body, (state,))
    if not isinstance(result, tuple):
        return False
    rows = {number: _joined(result[number]) for number in changed}
    is_linear = all(row.all & ~row.linear & 1 << number == 0 for number, row in rows.items())
    is_scaled = any(row.scaled & 1 << number for number, row in rows.items())
    return is_linear and is_scaled and not _has_circle({n: row.all for n, row in rows.items()})


def _changed(body: Computation) -> list[int]:
    """Return the floating-point elements of the state that a step changes."""
    return [
        number
        for number, value in enumerate(body.root.operands)
        if value.shape.is_array
        and value.shape.is_floating
        and not (
            value.opcode == "get-tuple-element"
            and value.operands[0].opcode == "parameter"
            and value.attributes.get("index") == str(number)
        )
    ]


def _has_circle(rows: dict[int, int]) -> bool:
    """Return whether one of these depends on itself through another; each row has bits."""
    left = dict(rows)
    while left:
        remaining = sum(1 << number for number in left)
        free = [number for number, row in left.items() if not row & remaining & ~(1 << number)]
        if not free:
            return True
        for number in free:
            del left[number]
    return False


def _joined(value: Value) -> Dependence:
    """Return what any part of a value depends on."""
    if isinstance(value, Dependence):
        return value
    return reduce(_sum, [part for part in value if isinstance(part, Dependence)], _NONE)


def _sum(a: Dependence, b: Dependence) -> Dependence:
    both = a.all | b.all
    bent = a.all & ~a.linear | b.all & ~b.linear
    return Dependence(both, both & ~bent, (a.scaled | b.scaled) & ~bent)


def _product(a: Dependence, b: Dependence) -> Dependence:
    linear = a.linear & ~b.all | b.linear & ~a.all
    return Dependence(a.all | b.all, linear, linear)


def _bent(*values: Dependence) -> Dependence:
    return Dependence(reduce(lambda bits, value: bits | value.all, values, 0))


def _evaluate(computation: Computation, arguments: Sequence[Value]) -> Value:
    """Return what the root of a computation depends on, through fusions."""
    frames: list[tuple[Computation, Sequence[Value], list[Value]]] = [(computation, arguments, [])]
    while True:
        computation, arguments, values = frames[-1]
        edges = computation.graph.operands
        for instruction in computation.instructions[len(values) :]:
            operands = [values[edge] for edge in edges[instruction.index]]
            if instruction.opcode in ("call", "fusion") and instruction.called:
                frames.append((instruction.called[0], operands, []))
                break
            values.append(_value(instruction, operands, arguments))
        else:
            frames.pop()
            result = values[computation.graph.root]
            if not frames:
                return result
            frames[-1][2].append(result)


def _value(instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
    opcode = instruction.opcode
    if opcode == "parameter":
        return arguments[instruction.parameter_number or 0]
    if opcode == "tuple":
        return tuple(operands)
    if opcode == "get-tuple-element" and isinstance(operands[0], tuple):
        return operands[0][int(instruction.attributes["index"])]
    return _dependence(opcode, [_joined(operand) for operand in operands])


def _dependence(opcode: str, operands: list[Dependence]) -> Dependence:
    if opcode in _LINEAR:
        return reduce(_sum, operands, _NONE)
    if opcode in ("multiply", "complex"):
        return _product(operands[0], operands[1])
    if opcode == "divide":
        return _product(operands[0], _bent(operands[1]))
    if opcode == "select":
        return reduce(_sum, [_bent(operands[0]), *operands[1:]], _NONE)
    if opcode in ("dynamic-slice", "dynamic-update-slice"):
        count = 1 if opcode == "dynamic-slice" else 2
        return reduce(_sum, [*operands[:count], _bent(*operands[count:])], _NONE)
    return _bent(*operands)
