"""Recognises values for recipes, and replaces them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_and_prune,
)
from fusionscope.hlo import parse
from fusionscope.hlo.shape import Shape

FLOATS = frozenset({"bf16", "f16", "f32", "f64"})
COMBINERS = frozenset({"add", "and", "maximum", "minimum", "multiply", "or"})


def combiner(instruction: MutableInstruction) -> str | None:
    """Return the opcode by which a reduce or scatter combines two elements, None if it is more than
    one operation on its two parameters.
    """
    (callee,) = instruction.called
    root = callee.root
    is_plain = len(callee.parameters) == 2 and set(root.operands) == set(callee.parameters)
    return root.opcode if is_plain and root.opcode in COMBINERS else None


_NEUTRAL = {"add": ("0", "-0"), "multiply": ("1",), "or": ("false",), "and": ("true",)}


def is_neutral(reduction: MutableInstruction) -> bool:
    """Return whether the result stays the same if the initial value of a reduction enters it
    repeatedly.
    """
    opcode = combiner(reduction)
    if opcode in ("maximum", "minimum"):
        return True
    return scalar(reduction.operands[1]) in _NEUTRAL.get(opcode or "", ())


def scalar(value: MutableInstruction) -> str | None:
    """Return the literal that all elements of ``value`` equal; None if they are not copies of one
    constant.
    """
    while value.opcode in ("broadcast", "reshape"):
        value = value.operands[0]
    is_one = value.opcode == "constant" and value.shape.element_count == 1
    return value.literal.strip("{ }") if is_one else None


def is_zero(value: MutableInstruction) -> bool:
    return scalar(value) in ("0", "-0", "false")


def unspread(value: MutableInstruction) -> MutableInstruction:
    """Return what ``value`` consists of copies of. Broadcasts, and operations that add or drop
    dimensions of one element, are transparent.
    """
    while value.opcode == "broadcast" or (
        value.opcode == "reshape" and _without_ones(value) == _without_ones(value.operands[0])
    ):
        value = value.operands[0]
    return value


def _without_ones(value: MutableInstruction) -> list[int | None]:
    return [size for size in value.shape.dimensions if size != 1]


def array(element_type: str, dimensions: Sequence[int | None]) -> str:
    """Return a shape as text, without a layout: the compiler chooses one."""
    return f"{element_type}[{','.join(map(str, dimensions))}]"


def text_of(value: MutableInstruction) -> str:
    """Return the shape of an array, without its layout."""
    return array(value.shape.element_type, value.shape.dimensions)


def integers(values: Sequence[int]) -> str:
    """Return them in the notation of attributes: ``{0,1}``."""
    return f"{{{','.join(map(str, values))}}}"


class DotDimensions(NamedTuple):
    """Dimensions of the operands of a dot by role. In the result, those of the batch come first,
    then the free ones of the left operand, then those of the right.
    """

    left_batch: tuple[int, ...]
    left_contracting: tuple[int, ...]
    left_free: tuple[int, ...]
    right_batch: tuple[int, ...]
    right_contracting: tuple[int, ...]
    right_free: tuple[int, ...]


def dot_dimensions(dot: MutableInstruction) -> DotDimensions:
    groups: list[tuple[int, ...]] = []
    for side, operand in zip(("lhs", "rhs"), dot.operands, strict=True):
        batch = tuple(dot.attribute(f"{side}_batch_dims") or ())
        contracting = tuple(dot.attribute(f"{side}_contracting_dims") or ())
        named_dimensions = {*batch, *contracting}
        free = tuple(
            dimension
            for dimension in range(operand.shape.rank)
            if dimension not in named_dimensions
        )
        groups += [batch, contracting, free]
    return DotDimensions(*groups)


def sizes_of(shape: Shape, dimensions: Sequence[int]) -> int:
    """Return the number of elements in these dimensions."""
    sizes = (shape.dimensions[dimension] for dimension in dimensions)
    return math.prod(1 if size is None else size for size in sizes)


def multiply_and_sum(dot: MutableInstruction) -> None:
    """Replace a dot with the product of both operands, broadcast against each other, and its sum
    over the contracted dimensions. If only transposes read the dot, the sum replaces them.
    """
    left, right = dot.operands
    dimensions = dot_dimensions(dot)
    # Each dimension is a place in the left operand and one in the right, None if it has no such.
    shared = list(zip(dimensions.left_contracting, dimensions.right_contracting, strict=True))
    places: list[tuple[int | None, int | None]] = [
        *zip(dimensions.left_batch, dimensions.right_batch, strict=True),
        *((place, None) for place in dimensions.left_free),
        *((None, place) for place in dimensions.right_free),
    ]
    summed = len(places) - len(dimensions.right_free)
    replaced = _transposes(dot)
    if replaced:
        places = [places[place] for place in replaced[0].attribute("dimensions")]
        summed = len(places)
    of_product = [*places[:summed], *shared, *places[summed:]]
    kind = dot.shape.element_type
    sizes = [
        left.shape.dimensions[left_place]
        if left_place is not None
        else right.shape.dimensions[right_place or 0]
        for left_place, right_place in of_product
    ]
    whole = array(kind, sizes)
    of_left, of_right = (
        integers([side.index(place) for place in range(operand.shape.rank)])
        for side, operand in zip(zip(*of_product, strict=True), dot.operands, strict=True)
    )
    over = integers(range(summed, summed + len(shared)))
    result = (replaced or [dot])[0]
    sums = build(
        dot,
        f"""
        left = {whole} broadcast(%p0), dimensions={of_left}
        right = {whole} broadcast(%p1), dimensions={of_right}
        products = {whole} multiply(left, right)
        zero = {kind}[] constant(0)
        ROOT sums = {text_of(result)} reduce(products, zero), dimensions={over}, to_apply=add
        """,
        [left, right],
        reducer("add", kind),
    )
    for product in replaced or [dot]:
        replace_and_prune(product, sums)


def _transposes(dot: MutableInstruction) -> list[MutableInstruction]:
    """Return the users of ``dot`` if they are equal transposes, otherwise none."""
    users = list(dot.users)
    orders = {
        tuple(user.attribute("dimensions")) if user.opcode == "transpose" else () for user in users
    }
    return users if len(orders) == 1 and orders != {()} else []


def reducer(opcode: str, element_type: str) -> str:
    """Return a computation, named after its opcode, that combines two elements."""
    scalar_type = f"{element_type}[]"
    return (
        f"{opcode} {{\n  one = {scalar_type} parameter(0)\n  other = {scalar_type} parameter(1)\n"
        f"  ROOT both = {scalar_type} {opcode}(one, other)\n}}\n\n"
    )


def build(
    near: MutableInstruction,
    lines: str,
    operands: Sequence[MutableInstruction],
    computations: str = "",
) -> MutableInstruction:
    """Add instructions to the computation of ``near``, with its metadata, and return the last one.

    ``lines`` are HLO, one instruction a line, which read ``operands`` as ``%p0``, ``%p1`` and so
    on; ``computations`` are what they call.
    """
    parameters = (
        f"  %p{number} = {operand.shape} parameter({number})\n"
        for number, operand in enumerate(operands)
    )
    body = "\n".join(f"  {line.strip()}" for line in lines.splitlines() if line.strip())
    text = f"HloModule part\n\n{computations}ENTRY part {{\n{''.join(parameters)}{body}\n}}\n"
    part = MutableModule(parse(text)).entry
    target, module = near.computation, near.computation.module
    metadata = near.attributes.get("metadata")
    suffix = f", metadata={metadata}" if metadata is not None else ""
    callees: dict[MutableComputation, MutableComputation] = {}
    values = dict(zip(part.parameters, operands, strict=True))
    for instruction in part.post_order():
        if instruction.opcode != "parameter":
            clone = clone_into(
                instruction, target, [values[operand] for operand in instruction.operands]
            )
            clone.attributes_text += suffix
            clone.origin = near.origin
            values[instruction] = clone
            for computation in instruction.called:
                if computation not in callees:
                    callees[computation] = copy_computation(computation, module)
                del computation.callers[clone]
                callees[computation].callers[clone] = None
            clone.called = [callees[computation] for computation in instruction.called]
            clone.attributes_text = _renamed(clone, instruction)
    return values[part.root]


def copy_computation(
    computation: MutableComputation, module: MutableModule | None = None
) -> MutableComputation:
    """Return a copy, in the module of the original unless another is named."""
    copy = (module or computation.module).add_computation(computation.name)
    values: dict[MutableInstruction, MutableInstruction] = {}
    for instruction in computation.post_order():
        values[instruction] = clone_into(
            instruction, copy, [values[operand] for operand in instruction.operands]
        )
    copy.parameters.sort(key=lambda parameter: parameter.parameter_number)
    copy.root = values[computation.root]
    return copy


def _renamed(clone: MutableInstruction, original: MutableInstruction) -> str:
    """Return its attributes with the new names of the called computations."""
    text = clone.attributes_text
    for old, new in zip(original.called, clone.called, strict=True):
        text = calling(text, old, new)
    return text


def calling(attributes: str, old: MutableComputation, new: MutableComputation) -> str:
    """Return the text of ``attributes`` with ``new`` where they name ``old``, with a percent sign
    or, as in short texts, without.
    """
    return re.sub(rf"=%?{re.escape(old.name)}(?![\w.\-])", f"=%{new.name}", attributes)


def put(
    old: MutableInstruction,
    lines: str,
    operands: Sequence[MutableInstruction],
    computations: str = "",
) -> None:
    """Replace ``old`` with the result of ``build``; remove everything that only ``old`` read."""
    replace_and_prune(old, build(old, lines, operands, computations))
