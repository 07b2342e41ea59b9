"""Arrays of which each step of a loop writes or reads one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionscope.advise.recipes.loops import (
    Loop,
    StepNumbers,
    element_of,
    extend_state,
    set_result,
)
from fusionscope.advise.recipes.patterns import array, build, integers, is_zero
from fusionscope.graph.fusing import add_element
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape


@dataclass(frozen=True, slots=True)
class Stack:
    """Element ``index`` of a state, in which each step writes a row at its own of ``numbers``."""

    index: int
    update: MutableInstruction
    numbers: Sequence[int]
    place: MutableInstruction


def read_stack(loop: Loop, numbers: StepNumbers, index: int) -> Stack | None:
    """Return what the steps write into an element of the state; None if they do something else."""
    result = loop.results[index]
    if result.opcode != "dynamic-update-slice" or len(result.operands) < 3:
        return None
    whole, update, place, *later = result.operands
    steps = numbers.of(place)
    is_stack = (
        element_of(whole) == index
        and [user for item in loop.elements(index) for user in item.users] == [result]
        and list(result.users) == [loop.body.root]
        and whole.shape.dimensions == (loop.steps, *update.shape.dimensions[1:])
        and update.shape.dimensions[0] == 1
        and all(map(is_zero, later))
        and steps is not None
        and min(steps) == 0
        and is_run(steps)
    )
    return Stack(index, update, steps, place) if is_stack and steps is not None else None


def is_run(numbers: Sequence[int]) -> bool:
    """Return whether they are consecutive, upwards or downwards."""
    first, count = numbers[0], len(numbers)
    return list(numbers) in (
        list(range(first, first + count)),
        list(range(first, first - count, -1)),
    )


def write_rows(loop: Loop, value: MutableInstruction, place: MutableInstruction) -> int:
    """Let each step write ``value`` into a row of a new array, at ``place``. Return its index in
    the state.
    """
    shape = value.shape
    rows = array(shape.element_type, (loop.steps, *shape.dimensions))
    zeros = f"""
        zero = {shape.element_type}[] constant({"false" if shape.element_type == "pred" else 0})
        ROOT zeros = {rows} broadcast(zero), dimensions={{}}
        """
    stack = extend_state(loop, build(loop.instruction, zeros, []))
    update = f"""
        row = {array(shape.element_type, (1, *shape.dimensions))} reshape(%p0)
        zero = {place.shape} constant(0)
        ROOT rows = {rows} dynamic-update-slice(%p1, row, %p2{", zero" * shape.rank})
        """
    index = len(loop.results) - 1
    set_result(loop, index, build(value, update, [value, stack, place]))
    return index


def read_row(
    stack: MutableInstruction, place: MutableInstruction, shape: Shape, near: MutableInstruction
) -> MutableInstruction:
    """Add the row of ``stack`` at ``place``, of ``shape``, with the metadata of ``near``."""
    row = array(shape.element_type, (1, *shape.dimensions))
    sizes = integers([1, *(size or 0 for size in shape.dimensions)])
    lines = f"""
        zero = {place.shape} constant(0)
        row = {row} dynamic-slice(%p0, %p1{", zero" * shape.rank}), dynamic_slice_sizes={sizes}
        ROOT value = {array(shape.element_type, shape.dimensions)} reshape(row)
        """
    return build(near, lines, [stack, place])


def step_place(loop: Loop) -> MutableInstruction:
    """Return the number of the step in the body, from zero."""
    counter = (loop.elements(loop.counter) or [add_element(loop.body.parameters[0], loop.counter)])[
        0
    ]
    first, _ = loop.counters[loop.counter]
    if first == 0:
        return counter
    lines = f"""
        first = {counter.shape} constant({first})
        ROOT place = {counter.shape} subtract(%p0, first)
        """
    return build(counter, lines, [counter])
