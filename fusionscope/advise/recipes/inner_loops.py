"""A loop in the body of another loop, computed for all steps of the outer one at once.

On a CPU the rounds of JAX's random numbers are such a loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.advise.recipes.loops import callee, count_steps, counter_of, element_of
from fusionscope.advise.recipes.patterns import calling, copy_computation
from fusionscope.advise.recipes.vectorizing import Builder, Value, form_of
from fusionscope.graph.fusing import add_element, clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo.shape import TUPLE, Shape


def find_stacked(
    loop: MutableInstruction, starts: Sequence[bool], steps: int
) -> tuple[bool, ...] | None:
    """Return which elements of the state of ``loop`` need a dimension for the ``steps`` of the
    loop around it. ``starts`` says which do before its first step. None if not all of its body has
    a form for all steps, or the number of its own steps is not the same in each.
    """
    if count_steps(loop) is None:
        return None
    body, elements = callee(loop, "body"), list(starts)
    while True:
        stacked = _classify(body, elements, steps)
        if stacked is None:
            return None
        after = [
            before or stacked[r] for before, r in zip(elements, body.root.operands, strict=True)
        ]
        if after == elements:
            break
        elements = after
    counter = counter_of(loop)
    return None if counter is None or elements[counter] else tuple(elements)


def _classify(
    body: MutableComputation, elements: Sequence[bool], steps: int
) -> dict[MutableInstruction, bool] | None:
    """Return which values of a body differ between the steps of the loop around it; None if one
    of these has no form for all of them.
    """
    stacked: dict[MutableInstruction, bool] = {}
    for instruction in body.post_order():
        index = element_of(instruction)
        if index is not None:
            stacked[instruction] = elements[index]
        elif instruction is not body.root and instruction.opcode != "parameter":
            if not all(operand in stacked for operand in instruction.operands):
                return None
            flags = [stacked[operand] for operand in instruction.operands]
            if any(flags) and form_of(instruction, flags, steps) is None:
                return None
            stacked[instruction] = any(flags)
    return stacked


def stack_loop(
    loop: MutableInstruction, stacked: Sequence[bool], starts: Sequence[Value], builder: Builder
) -> list[Value]:
    """Add a loop that does what ``loop`` does in all steps of the one around it. Return the
    elements of its state after it, those of ``stacked`` with the dimension of steps.
    """
    shapes = [
        builder.stacked(start.shape) if flag and not start.is_stacked else start.shape
        for start, flag in zip(starts, stacked, strict=True)
    ]
    state = Shape(TUPLE, elements=tuple(shapes))
    body, condition = callee(loop, "body"), callee(loop, "condition")
    longer = body.module.add_computation(f"{body.name}_stacked")
    _write_body(body, longer, state, stacked, builder)
    compared = copy_computation(condition)
    compared.parameters[0].shape = state
    before = _collect(starts, stacked, builder)
    start = builder.target.make("tuple", state, before)
    clone = clone_into(loop, builder.target, [start])
    clone.shape = state
    text = clone.attributes_text
    for original, copy in ((body, longer), (condition, compared)):
        del original.callers[clone]
        copy.callers[clone] = None
        text = calling(text, original, copy)
    copies = {body: longer, condition: compared}
    clone.called = [copies[computation] for computation in loop.called]
    clone.set_attributes(text)
    return [Value(add_element(clone, index), flag) for index, flag in enumerate(stacked)]


def _write_body(
    body: MutableComputation,
    longer: MutableComputation,
    state: Shape,
    stacked: Sequence[bool],
    outer: Builder,
) -> None:
    """Let ``longer`` do what ``body`` does, for all steps of the loop around it."""
    parameter = longer.make_parameter(state)
    builder = Builder(longer, outer.near, outer.steps)
    values: dict[MutableInstruction, Value] = {}
    for instruction in body.post_order():
        index = element_of(instruction)
        if index is not None:
            values[instruction] = Value(add_element(parameter, index), stacked[index])
        elif instruction is not body.root and instruction.opcode != "parameter":
            operands = [values[operand] for operand in instruction.operands]
            values[instruction] = builder.clone(instruction, operands)
    results = [values[result] for result in body.root.operands]
    longer.root = longer.make("tuple", state, _collect(results, stacked, builder))


def _collect(
    values: Sequence[Value], stacked: Sequence[bool], builder: Builder
) -> list[MutableInstruction]:
    """Return the instructions of ``values``, with the dimension of steps where ``stacked``."""
    return [
        (builder.stack(value) if flag else value).instruction
        for value, flag in zip(values, stacked, strict=True)
    ]
