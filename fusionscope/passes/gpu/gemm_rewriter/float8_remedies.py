"""The smallest edits of a module after which a product can be one call on 8-bit floats.

An edit changes no result, but for rounding, where there is one like that; else it is said how the
result changes. It works on the stage before products become calls.
"""

from __future__ import annotations

from collections.abc import Callable

from fusionscope.graph.mutable import MutableInstruction, remove_unused, replace_operand
from fusionscope.graph.properties import is_one_elementwise
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_rewriter.float8 import (
    FLOAT8,
    Formats,
    Operand,
    OperandRule,
    Product,
    Result,
    Types,
    read_operand,
)

_SIDES = ("lhs", "rhs")
_E4, _E5 = "f8e4m3fn", "f8e5m2"
_BACK = {"multiply": "divide", "divide": "multiply"}


def meet(rule: str, product: Product) -> str | None:
    """Change the module of ``product`` so that the condition ``rule`` is met. Return how the result
    changes, empty if only by rounding, or None if there is no edit: then nothing is changed.
    """
    if rule in (Types.id, Formats.id):
        return _narrow(product)
    (condition,) = (condition for condition in FLOAT8 if condition.id == rule)
    if not isinstance(condition, OperandRule):
        return None
    edit = _EDITS.get(rule)
    are_changed = [
        edit(product.dot, operand)
        for operand in product.operands
        if edit is not None
        and all(value.parent is not None for value in operand.path)  # as for a product of one array
    ]
    changes = _round_refused(condition, product.dot)
    return "; ".join(changes) if changes or any(are_changed) else None


def _narrow(product: Product) -> str | None:
    """The left operand is converted to the format that can be multiplied by both."""
    dot, (left, right) = product.dot, product.operands
    kinds = [operand.path[0].shape.element_type for operand in (left, right) if operand.path]
    is_same = dot.operands[0] is dot.operands[1]
    if kinds != [_E5, _E5] or is_same or Result().check(product) is not None:
        return None
    value = left.path[0]
    narrow = dot.computation.make("convert", Shape(_E4, value.shape.dimensions), [value])
    replace_operand(left.path[1] if len(left.path) > 1 else dot, value, narrow)
    return f"{left.name} becomes {_E4}, which ends at 448"


def _round_refused(condition: OperandRule, dot: MutableInstruction) -> list[str]:
    """Round the operands that do not meet a condition. Return how the result changes."""
    changes = []
    for number in (0, 1):
        operand = read_operand(dot, number)
        if condition.check(operand) is not None:
            changes += _round(dot, operand)
    return changes


def _round(dot: MutableInstruction, operand: Operand) -> list[str]:
    """The operand is scaled, converted to 8-bit floats and back: by its scale if that is a number,
    else by a new argument of the program.
    """
    value, make = dot.operands[operand.number], dot.computation.make
    shape, kind = value.shape, value.shape.element_type
    change = f"{operand.name} is rounded to {_E4}"
    opcode, scale = "multiply", operand.scale
    if scale is not None and (scale.shape.element_type, scale.shape.dimensions) == (kind, ()):
        opcode = operand.path[2].opcode
    elif dot.computation is dot.computation.module.entry:
        scale = dot.computation.make_parameter(Shape(kind, ()))
        change += f", with a scale ({scale.name}) that keeps it within 448"
    else:
        return []
    scales = make("broadcast", shape, [scale], ", dimensions={}")
    unscaled = make(_BACK[opcode], shape, [value, scales])
    narrow = make("convert", Shape(_E4, shape.dimensions), [unscaled])
    wide = make("convert", shape, [narrow])
    replace_operand(dot, value, make(opcode, shape, [wide, scales]))
    return [change]


def _scale_result(dot: MutableInstruction, operand: Operand) -> bool:
    """The scales of rows or columns are applied to the result."""
    scale = operand.scale
    if scale is None or scale.shape.rank != 1 or operand.later:
        return False
    wider, scaled = operand.path[1:]
    (factor,) = (value for value in scaled.operands if value is not wider)
    place = _in_result(dot, operand.number, factor.attribute("dimensions")[0])
    if place is None:
        return False
    _bypass(dot, operand, scaled, wider)
    make, kind = dot.computation.make, dot.shape.element_type
    if scale.shape.element_type != kind:
        scale = make("convert", Shape(kind, scale.shape.dimensions), [scale])
    _apply(dot, scaled.opcode, make("broadcast", dot.shape, [scale], f", dimensions={{{place}}}"))
    remove_unused(scaled)
    return True


def _in_result(dot: MutableInstruction, number: int, dimension: int) -> int | None:
    """Return the dimension of the result that a dimension of an operand becomes, None if it is
    summed over.
    """
    free = [
        [
            d
            for d in range(operand.shape.rank)
            if d not in (dot.attribute(f"{side}_batch_dims") or ())
            and d not in (dot.attribute(f"{side}_contracting_dims") or ())
        ]
        for operand, side in zip(dot.operands, _SIDES, strict=True)
    ]
    dimensions = [
        *(dot.attribute(f"{_SIDES[number]}_batch_dims") or ()),
        *(d if number == side else None for side in (0, 1) for d in free[side]),
    ]
    return dimensions.index(dimension) if dimension in dimensions else None


def _scale_more(dot: MutableInstruction, operand: Operand) -> bool:
    """Signs and numbers that multiply the scaled operand become part of its scale."""
    factors: list[MutableInstruction | None] = []  # None for a sign
    bypassed: list[MutableInstruction] = []
    before = operand.path[-len(operand.later) - 1] if operand.later else None
    for instruction in operand.later:
        factor = _factor(instruction, before)
        if instruction.opcode == "negate" or factor is not None:
            assert before is not None
            factors.append(factor)
            bypassed.append(instruction)
            _bypass(dot, operand, instruction, before)
        else:
            before = instruction
    if factors:
        _change_scale(operand, factors)
    for instruction in bypassed:
        remove_unused(instruction)
    return bool(factors)


def _factor(
    instruction: MutableInstruction, before: MutableInstruction | None
) -> MutableInstruction | None:
    """Return the number by which an operand is multiplied."""
    if instruction.opcode != "multiply" or len(set(instruction.operands)) < 2:
        return None
    (factor,) = (value for value in instruction.operands if value is not before)
    return _number(factor)


def _change_scale(operand: Operand, factors: list[MutableInstruction | None]) -> None:
    wider = operand.path[1]
    make, scale = wider.computation.make, operand.scale
    scaled = operand.path[2] if scale is not None else None
    for factor in factors:
        if factor is None:
            factor = make("constant", Shape(wider.shape.element_type, ()), [])
            factor.inside = "-1"
        opcode = scaled.opcode if scaled is not None else "multiply"
        scale = make(opcode, factor.shape, [scale, factor]) if scale is not None else factor
    assert scale is not None
    spread = make("broadcast", wider.shape, [scale], ", dimensions={}")
    readers = [user for user in wider.users if user is not scaled]
    result = make(scaled.opcode if scaled else "multiply", wider.shape, [wider, spread])
    if scaled is not None:
        readers = list(scaled.users)
    for user in readers:
        replace_operand(user, scaled or wider, result)
    if scaled is not None:
        remove_unused(scaled)


def _number(value: MutableInstruction) -> MutableInstruction | None:
    """Return the number that all elements of an array are, None if that is not plain."""
    if value.opcode == "broadcast" and not value.operands[0].shape.dimensions:
        return value.operands[0]
    if not is_one_elementwise(value) or len(value.operands) != 1:
        return None
    number = _number(value.operands[0])
    if number is None:
        return None
    scalar = Shape(value.shape.element_type, ())
    return value.computation.make(value.opcode, scalar, [number], value.attributes_text)


def _bypass(
    dot: MutableInstruction,
    operand: Operand,
    instruction: MutableInstruction,
    before: MutableInstruction,
) -> None:
    """Let the product, and what leads to it, read what ``instruction`` was computed from."""
    for user in list(instruction.users):
        if user is dot or user in operand.path:
            replace_operand(user, instruction, before)


def _apply(dot: MutableInstruction, opcode: str, *operands: MutableInstruction) -> None:
    """Compute something from the result for all that read it."""
    readers, is_root = list(dot.users), dot.is_root
    result = dot.computation.make(opcode, dot.shape, [dot, *operands])
    for user in readers:
        replace_operand(user, dot, result)
    if is_root:
        dot.computation.root = result


_EDITS: dict[str, Callable[[MutableInstruction, Operand], bool]] = {
    "f8-between": _scale_more,
    "f8-scale": _scale_result,
}
