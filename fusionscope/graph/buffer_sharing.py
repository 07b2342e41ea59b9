"""Whether an instruction may write its result over an operand that nothing reads later."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableInstruction, slots_of
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape


def may_share(
    operand: MutableInstruction, user: MutableInstruction, index: tuple[int, ...]
) -> bool:
    """Return whether ``user`` may write its result at ``index`` where its ``operand`` is.

    Source: xla/hlo/analysis/hlo_dataflow_analysis.cc, CanShareOperandBufferWithUser.
    """
    if operand.opcode == "constant" or operand.shape != part_of(user.shape, index):
        return False
    slots = slots_of(user, operand)
    if user.opcode == "fusion":
        if user.fusion_kind == "kOutput" and user.fused.root.opcode == "add":
            return _is_added_last(user, slots[0])
        if user.is_multi_output and user.fusion_kind not in ("kLoop", "kInput"):
            return False
        return reached_elementwise(user.fused.parameters[slots[0]]) is not None
    if user.opcode in ("while", "conditional"):
        return True
    if user.opcode in ("dynamic-update-slice", "scatter", "set-dimension-size"):
        return slots == [0]
    if user.opcode == "triangular-solve":
        return slots == [1]
    if user.opcode == "sort":
        only = len(operand.users) == 1
        return only and (len(user.operands) == 1 or (len(slots) == 1 and index[:1] == (slots[0],)))
    if user.opcode == "call":
        return False
    return is_elementwise(user)


def part_of(shape: Shape, index: tuple[int, ...]) -> Shape:
    for number in index:
        shape = shape.elements[number]
    return shape


def is_elementwise_on(user: MutableInstruction, operand: MutableInstruction) -> bool:
    """Return whether each element of the result depends on the same element of ``operand`` only.

    Source: HloInstruction::IsElementwiseOnOperand.
    """
    if user.opcode == "dynamic-update-slice":
        return user.operands[0] is operand and operand not in user.operands[1:]
    return is_elementwise(user)


def reached_elementwise(parameter: MutableInstruction) -> set[MutableInstruction] | None:
    """Return all instructions that depend on ``parameter``, and itself, or None if one of them does
    so other than element by element.

    Source: AreTransitiveUsesElementwiseOrTuple.
    """
    reached: set[MutableInstruction] = set()
    for value in reachable([parameter], lambda value: value.users):
        reached.add(value)
        for user in value.users:
            if user.opcode != "tuple" and not is_elementwise_on(user, value):
                return None
    return reached


def _is_added_last(fusion: MutableInstruction, slot: int) -> bool:
    """Return whether the fusion adds its parameter ``slot`` to a product, and only there."""
    root, parameter = fusion.fused.root, fusion.fused.parameters[slot]
    products = [
        n for n, operand in enumerate(root.operands) if operand.opcode in ("convolution", "dot")
    ]
    if not products or list(parameter.users) != [root]:
        return False
    return slots_of(root, parameter) == [1 - products[0]]
