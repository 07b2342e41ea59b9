"""Replays the pass that widens types that the device cannot compute in.

It forms no fusions. But its conversions, most of which it removes again, leave the users of a value
in an order that no text shows and that later passes depend on. The instructions that it changes
depend on the device; here, the types in its result show them. Source:
xla/hlo/transforms/simplifiers/float_normalization.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    replace_operand,
)
from fusionscope.graph.visiting import visit
from fusionscope.hlo import Module

_UNTOUCHED = frozenset(
    """bitcast bitcast-convert call conditional constant convert custom-call fusion
    get-tuple-element parameter tuple while""".split()
)
_Types = Mapping[str, tuple[str, Sequence[str]]]


def normalize_floats(graph: MutableModule, result: Module) -> None:
    """Make the changes that lead to ``result``, except in tuples of arrays."""
    types = {
        instruction.name: (
            instruction.shape.element_type,
            [operand.shape.element_type for operand in instruction.operands],
        )
        for computation in result.reachable()
        for instruction in computation.instructions
    }
    for computation in graph.post_order():
        if not computation.is_fused:
            visit(computation, partial(_normalize, types=types), set())
    remove_dead(graph)


def _normalize(instruction: MutableInstruction, types: _Types) -> None:
    """Source: FloatNormalizationVisitor::HandleInstruction."""
    if instruction.opcode in _UNTOUCHED or instruction.name not in types:
        return
    own_type, read = types[instruction.name]
    for slot, operand_type in enumerate(read[: len(instruction.operands)]):
        operand = instruction.operands[slot]
        if operand.shape.is_array and operand.shape.element_type != operand_type:
            converted = _converted(operand, operand_type)
            operand.users.drop(instruction)
            instruction.operands[slot] = converted
            converted.users.add(instruction)
    if instruction.shape.is_array and instruction.shape.element_type != own_type:
        _widen(instruction, own_type)


def _widen(instruction: MutableInstruction, element_type: str) -> None:
    """Widen the type of an instruction. Its conversions to that type lose their users.

    Source: ChangeOutputTypeThenInsertConvertBack.
    """
    narrow = instruction.shape.element_type
    users = list(instruction.users)
    instruction.shape = replace(instruction.shape, element_type=element_type)
    back = _converted(instruction, narrow)
    computation = instruction.computation
    widening = [
        user
        for user in users
        if user.opcode == "convert" and user.shape.element_type == element_type
    ]
    for user in users:
        if user not in widening:
            replace_operand(user, instruction, back)
    for user in widening:
        computation.replace_uses(user, instruction)
    if computation.root is instruction:
        computation.root = back


def _converted(operand: MutableInstruction, element_type: str) -> MutableInstruction:
    """Source: FloatNormalizationVisitor::ConvertType."""
    shape = replace(operand.shape, element_type=element_type)
    return operand.computation.make("convert", shape, [operand])
