"""Loops of a known number of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionscope.advise.recipes.patterns import calling, copy_computation, scalar
from fusionscope.graph.fusing import add_element, clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo.shape import TUPLE, Shape

_MOST_STEPS = 16_384  # of which the indices are computed one by one


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop whose ``body`` runs ``steps`` times. Element ``counter`` of the state counts them;
    ``counters`` are all elements that do so, with their first values and increments.
    """

    instruction: MutableInstruction
    body: MutableComputation
    steps: int
    counter: int
    counters: Mapping[int, tuple[int, int]]

    @property
    def starts(self) -> list[MutableInstruction]:
        """The state before the first step."""
        return self.instruction.operands[0].operands

    @property
    def results(self) -> list[MutableInstruction]:
        """The state after a step."""
        return self.body.root.operands

    def elements(self, index: int) -> list[MutableInstruction]:
        """Return what reads an element of the state in the body."""
        (parameter,) = self.body.parameters
        return [user for user in parameter.users if element_of(user) == index]

    @property
    def invariants(self) -> set[int]:
        """The elements of the state that no step changes."""
        return {index for index, result in enumerate(self.results) if element_of(result) == index}

    @property
    def settled(self) -> set[int]:
        """The elements of the state that are known without running it."""
        return self.invariants | set(self.counters)

    def count(self, index: int) -> list[int]:
        """Return the values of a counter in each step, and after the last one."""
        first, increment = self.counters[index]
        return [first + increment * step for step in range(self.steps + 1)]


def find_loops(graph: MutableModule) -> Iterator[Loop]:
    """Yield the loops of a known number of steps that nothing else shares a body with."""
    for instruction in list(graph.walk()):
        if instruction.opcode == "while" and (loop := read_loop(instruction)) is not None:
            yield loop


def read_loop(instruction: MutableInstruction) -> Loop | None:
    steps, body = count_steps(instruction), callee(instruction, "body")
    counter = counter_of(instruction)
    if steps is None or counter is None or not 1 < steps <= _MOST_STEPS:
        return None
    (start,) = instruction.operands
    is_plain = (
        body.root.operands[counter].shape.element_type == "s32"
        and len(body.callers) == len(callee(instruction, "condition").callers) == 1
        and list(start.users) == [instruction]
        and not instruction.is_root
        and all(element_of(user) is not None for user in body.parameters[0].users)
        and all(user.opcode == "get-tuple-element" for user in instruction.users)
    )
    if not is_plain:
        return None
    counters = dict(_find_counters(body.root.operands, start.operands))
    return Loop(instruction, body, steps, counter, counters)


def _find_counters(
    results: Sequence[MutableInstruction], starts: Sequence[MutableInstruction]
) -> Iterator[tuple[int, tuple[int, int]]]:
    for index, (result, start) in enumerate(zip(results, starts, strict=True)):
        is_sum = result.opcode == "add" and result.shape.element_type == "s32"
        added = [scalar(operand) for operand in result.operands if element_of(operand) != index]
        first = scalar(start)
        if is_sum and not result.shape.rank and first is not None and len(added) == 1 and added[0]:
            yield index, (int(first), int(added[0]))


def callee(loop: MutableInstruction, role: str) -> MutableComputation:
    """Return the ``body`` or the ``condition``."""
    name = loop.attributes[role].lstrip("%")
    return next(computation for computation in loop.called if computation.name == name)


def count_steps(loop: MutableInstruction) -> int | None:
    """Return the number of steps, if a counter that is incremented by one between constants shows
    it.
    """
    condition, body = callee(loop, "condition").root, callee(loop, "body")
    (start,) = loop.operands
    if (
        condition.opcode != "compare"
        or condition.attributes.get("direction") != "LT"
        or start.opcode != "tuple"
        or body.root.opcode != "tuple"
    ):
        return None
    index = counter_of(loop)
    end = scalar(condition.operands[1])
    if index is None or end is None:
        return None
    counter = body.root.operands[index]
    first = scalar(start.operands[index])
    if first is None or counter.opcode != "add" or element_of(counter.operands[0]) != index:
        return None
    return int(end) - int(first) if scalar(counter.operands[1]) == "1" else None


def counter_of(loop: MutableInstruction) -> int | None:
    """Return the index in the state of what the condition compares."""
    return element_of(callee(loop, "condition").root.operands[0])


def element_of(value: MutableInstruction) -> int | None:
    """Return the index of the element of the parameter that it is."""
    if value.opcode != "get-tuple-element" or value.operands[0].opcode != "parameter":
        return None
    return index_of(value)


def index_of(element: MutableInstruction) -> int:
    return int(element.attribute("index"))


def _truncated_remainder(left: int, right: int) -> int:
    return abs(left) % abs(right) * (-1 if left < 0 else 1) if right else left


_INTEGER_OPERATIONS: dict[str, Callable[..., int]] = {
    "add": lambda left, right: left + right,
    "subtract": lambda left, right: left - right,
    "multiply": lambda left, right: left * right,
    "remainder": _truncated_remainder,
    "maximum": max,
    "minimum": min,
    "negate": lambda value: -value,
    "convert": lambda value: value,
    "select": lambda condition, yes, no: yes if condition else no,
    "clamp": lambda low, value, high: max(low, min(value, high)),
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "EQ": int.__eq__,
    "NE": int.__ne__,
    "LT": int.__lt__,
    "LE": int.__le__,
    "GT": int.__gt__,
    "GE": int.__ge__,
}
_BITS = {"s32": 32, "s64": 64, "u32": 32, "u64": 64, "pred": 1}


class StepNumbers:
    """The integers that a body computes from the number of the step alone."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._values: dict[MutableInstruction, Sequence[int] | None] = {}

    def of(self, instruction: MutableInstruction) -> Sequence[int] | None:
        """Return its value in each step; None if it is no number, or depends on something else."""
        pending = [instruction]
        while pending:
            current = pending[-1]
            unread = [operand for operand in current.operands if operand not in self._values]
            if current in self._values or not unread or not _is_number(current):
                self._values[pending.pop()] = self._compute(current)
            else:
                pending += unread
        return self._values[instruction]

    def _compute(self, instruction: MutableInstruction) -> Sequence[int] | None:
        kind = instruction.shape.element_type
        if not _is_number(instruction):
            return None
        element = element_of(instruction)
        if element is not None and element in self._loop.counters:
            return self._loop.count(element)[:-1]
        if instruction.opcode == "constant":
            return [_read_integer(instruction.literal)] * self._loop.steps
        operation = _INTEGER_OPERATIONS.get(instruction.opcode)
        if instruction.opcode == "compare":
            operation = _COMPARISONS.get(instruction.attributes.get("direction", ""))
        operands = [
            numbers
            for numbers in (self._values.get(operand) for operand in instruction.operands)
            if numbers is not None
        ]
        if operation is None or not operands or len(operands) < len(instruction.operands):
            return None
        return [_wrap(operation(*step), kind) for step in zip(*operands, strict=True)]


def _is_number(instruction: MutableInstruction) -> bool:
    return instruction.shape.element_type in _BITS and not instruction.shape.dimensions


def _read_integer(literal: str) -> int:
    return int({"true": "1", "false": "0"}.get(literal.strip("{ }"), literal.strip("{ }")))


def _wrap(value: int, kind: str) -> int:
    """Return ``value`` as an integer of this type holds it."""
    size = 1 << _BITS[kind]
    lowest = -(size >> 1) if kind.startswith("s") else 0
    return (value - lowest) % size + lowest


def copy_loop(loop: Loop) -> Loop:
    """Add another loop that does the same, beside the original."""
    instruction, target = loop.instruction, loop.instruction.computation
    (start,) = instruction.operands
    copy = clone_into(instruction, target, [clone_into(start, target)])
    copies = {}
    for computation in instruction.called:
        copies[computation] = copy_computation(computation)
        del computation.callers[copy]
        copies[computation].callers[copy] = None
    copy.called = [copies[computation] for computation in instruction.called]
    for old, new in copies.items():
        copy.attributes_text = calling(copy.attributes_text, old, new)
    copy.set_attributes(copy.attributes_text)
    return replace(loop, instruction=copy, body=callee(copy, "body"))


def extend_state(loop: Loop, start: MutableInstruction) -> MutableInstruction:
    """Add an element to the state, which begins as ``start`` and is never changed. Return what
    reads it in the body.
    """
    instruction = loop.instruction
    (tuple_of_starts,) = instruction.operands
    (parameter,), root = loop.body.parameters, loop.body.root
    shape = Shape(TUPLE, elements=(*parameter.shape.elements, start.shape))
    for value in (instruction, tuple_of_starts, parameter, root):
        value.shape = shape
    callee(instruction, "condition").parameters[0].shape = shape
    _append(tuple_of_starts, start)
    index = len(shape.elements) - 1
    element = add_element(parameter, index)
    _append(root, element)
    return element


def _append(reader: MutableInstruction, operand: MutableInstruction) -> None:
    reader.operands.append(operand)
    operand.users.add(reader)
    reader.places = None


def set_result(loop: Loop, index: int, result: MutableInstruction) -> None:
    """Let an element of the state be ``result`` after each step."""
    root = loop.body.root
    root.operands[index].users.drop(root)
    root.operands[index] = result
    result.users.add(root)
    root.places = None


def freeze(loop: Loop, index: int) -> None:
    """Let no step change an element of the state."""
    (parameter,) = loop.body.parameters
    set_result(loop, index, add_element(parameter, index))
