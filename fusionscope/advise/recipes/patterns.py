"""Recognises values for recipes, and replaces them."""

from __future__ import annotations

import math
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
    (called,) = instruction.called
    root = called.root
    is_plain = len(called.parameters) == 2 and set(root.operands) == set(called.parameters)
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
    found: list[tuple[int, ...]] = []
    for side, operand in zip(("lhs", "rhs"), dot.operands, strict=True):
        batch = tuple(dot.attribute(f"{side}_batch_dims") or ())
        contracting = tuple(dot.attribute(f"{side}_contracting_dims") or ())
        used = {*batch, *contracting}
        free = tuple(each for each in range(operand.shape.rank) if each not in used)
        found += [batch, contracting, free]
    return DotDimensions(*found)


def sizes_of(shape: Shape, dimensions: Sequence[int]) -> int:
    """Return the number of elements in these dimensions."""
    sizes = (shape.dimensions[each] for each in dimensions)
    return math.prod(1 if size is None else size for size in sizes)


def multiply_and_sum(dot: MutableInstruction) -> None:
    """Replace a dot with the product of both operands, broadcast against each other, and its sum
    over the contracted dimensions. If only transposes read the dot, the sum replaces them.
    """
    left, right = dot.operands
    found = dot_dimensions(dot)
    # Each dimension is a place in the left operand and one in the right, None if it has no such.
    shared = list(zip(found.left_contracting, found.right_contracting, strict=True))
    made: list[tuple[int | None, int | None]] = [
        *zip(found.left_batch, found.right_batch, strict=True),
        *((place, None) for place in found.left_free),
        *((None, place) for place in found.right_free),
    ]
    summed = len(made) - len(found.right_free)
    replaced = _transposes(dot)
    if replaced:
        made = [made[place] for place in replaced[0].attribute("dimensions")]
        summed = len(made)
    of_product = [*made[:summed], *shared, *made[summed:]]
    kind = dot.shape.element_type
    sizes = [
        left.shape.dimensions[one] if one is not None else right.shape.dimensions[other or 0]
        for one, other in of_product
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
    for each in replaced or [dot]:
        replace_and_prune(each, sums)


def _transposes(dot: MutableInstruction) -> list[MutableInstruction]:
    """Return the users of ``dot`` if they are equal transposes, otherwise none."""
    users = list(dot.users)
    orders = {
        tuple(each.attribute("dimensions")) if each.opcode == "transpose" else () for each in users
    }
    return users if len(orders) == 1 and orders != {()} else []


def reducer(opcode: str, element_type: str) -> str:
    """Return a computation, named after its opcode, that combines two elements."""
    one = f"{element_type}[]"
    return (
        f"{opcode} {{\n  one = {one} parameter(0)\n  other = {one} parameter(1)\n"
        f"  ROOT both = {one} {opcode}(one, other)\n}}\n\n"
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
        f"  %p{number} = {each.shape} parameter({number})\n" for number, each in enumerate(operands)
    )
    body = "\n".join(f"  {line.strip()}" for line in lines.splitlines() if line.strip())
    text = f"HloModule part\n\n{computations}ENTRY part {{\n{''.join(parameters)}{body}\n}}\n"
    part = MutableModule(parse(text)).entry
    target, module = near.computation, near.computation.module
    metadata = near.attributes.get("metadata")
    suffix = f", metadata={metadata}" if metadata is not None else ""
    called: dict[MutableComputation, MutableComputation] = {}
    made = dict(zip(part.parameters, operands, strict=True))
    for each in part.post_order():
        if each.opcode != "parameter":
            clone = clone_into(each, target, [made[operand] for operand in each.operands])
            clone.attributes_text += suffix
            clone.origin = near.origin
            made[each] = clone
            for computation in each.called:
                if computation not in called:
                    called[computation] = _copy(computation, module)
                del computation.callers[clone]
                called[computation].callers[clone] = None
            clone.called = [called[computation] for computation in each.called]
            clone.attributes_text = _renamed(clone, each)
    return made[part.root]


def _copy(computation: MutableComputation, module: MutableModule) -> MutableComputation:
    copy = module.add_computation(computation.name)
    made: dict[MutableInstruction, MutableInstruction] = {}
    for each in computation.post_order():
        made[each] = clone_into(each, copy, [made[operand] for operand in each.operands])
    copy.parameters.sort(key=lambda each: each.parameter_number)
    copy.root = made[computation.root]
    return copy


def _renamed(clone: MutableInstruction, original: MutableInstruction) -> str:
    """Return its attributes with the new names of the called computations."""
    text = clone.attributes_text
    for old, new in zip(original.called, clone.called, strict=True):
        text = text.replace(f"to_apply={old.name}", f"to_apply=%{new.name}")
    return text


def put(
    old: MutableInstruction,
    lines: str,
    operands: Sequence[MutableInstruction],
    computations: str = "",
) -> None:
    """Replace ``old`` with the result of ``build``; remove everything that only ``old`` read."""
    replace_and_prune(old, build(old, lines, operands, computations))
