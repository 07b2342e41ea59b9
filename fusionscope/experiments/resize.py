"""Changes the size of dimensions throughout a cut."""

from __future__ import annotations

import re
from dataclasses import replace

from fusionscope.errors import UnusableInput
from fusionscope.experiments.cut import Cut
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo import to_text
from fusionscope.hlo.inference import Operation, infer_shape
from fusionscope.hlo.shape import Shape

_FREE = frozenset({"broadcast", "iota", "parameter", "reshape", "rng", "rng-bit-generator"})
_SLICE = re.compile(r"\[(\d+):(\d+)((?::\d+)?)\]")
_FIXED = frozenset({"constant", "while", "conditional", "call", "custom-call", "fusion"})


def round_between(first: int, second: int) -> int | None:
    """Return the roundest number between two, that with the highest power of two as a divisor; None
    if none is between them. A reshape that divides a dimension can divide a round one, too.
    """
    low, high = sorted((first, second))
    for bit in reversed(range(high.bit_length())):
        round_number = ((low >> bit) + 1) << bit
        if round_number < high:
            return round_number
    return None


def resized(cut: Cut, old: int, new: int) -> Cut | None:
    """Return ``cut`` with dimensions of ``new`` elements in place of ``old``, wherever these are,
    or None if that is not a valid program or changes nothing.
    """
    opened = cut.edit()
    for instruction in opened.entry.post_order():
        if instruction is opened.entry.root:
            opened.fit_results()
            continue
        shape = _resize(instruction, old, new)
        if shape is None:
            return None
        instruction.shape = shape
    try:
        resized_cut = opened.close()
    except UnusableInput:
        return None
    return None if to_text(resized_cut.module) == to_text(cut.module) else resized_cut


def _resize(instruction: MutableInstruction, old: int, new: int) -> Shape | None:
    if instruction.opcode in _FIXED:
        return instruction.shape if old not in instruction.shape.dimensions else None
    if instruction.opcode == "slice":
        _resize_slice(instruction, old, new)
    if instruction.opcode == "dynamic-slice" and old in (
        instruction.attribute("dynamic_slice_sizes") or ()
    ):
        return None
    if instruction.opcode in _FREE:
        sizes = tuple(new if size == old else size for size in instruction.shape.dimensions)
        new_shape = replace(instruction.shape, dimensions=sizes)
        if (
            instruction.opcode == "reshape"
            and new_shape.element_count != instruction.operands[0].shape.element_count
        ):
            return _rebalanced(instruction, new_shape)
        return new_shape
    operation = Operation(
        instruction.opcode,
        [operand.shape for operand in instruction.operands],
        [computation.root.shape for computation in instruction.called],
        instruction.attributes,
    )
    inferred = infer_shape(operation)
    if inferred is None or inferred.is_tuple != instruction.shape.is_tuple:
        return (
            instruction.shape if not any(_has(o.shape, new) for o in instruction.operands) else None
        )
    if inferred.is_tuple:
        pairs = zip(inferred.elements, instruction.shape.elements, strict=True)
        return replace(
            instruction.shape, elements=tuple(_sized(element, like) for element, like in pairs)
        )
    return _sized(inferred, instruction.shape)


def _has(shape: Shape, size: int) -> bool:
    return size in shape.dimensions or any(size in element.dimensions for element in shape.elements)


def _sized(inferred: Shape, like: Shape) -> Shape:
    return replace(like, dimensions=inferred.dimensions)


def _rebalanced(reshape: MutableInstruction, new_shape: Shape) -> Shape | None:
    """Return the shape of ``reshape`` with one dimension changed so that the elements fit."""
    element_count, sizes = reshape.operands[0].shape.element_count, list(new_shape.dimensions)
    for place in reversed(range(len(sizes))):
        size = sizes[place] or 1
        other_elements = new_shape.element_count // size if size else 0
        if other_elements and size > 1 and element_count % other_elements == 0:
            sizes[place] = element_count // other_elements
            return replace(new_shape, dimensions=tuple(sizes))
    return None


def _resize_slice(instruction: MutableInstruction, old: int, new: int) -> None:
    """Let a slice that ends with its operand end with it still."""
    sizes = iter(zip(instruction.operands[0].shape.dimensions, strict=True))

    def change(bounds: re.Match[str]) -> str:
        (size,) = next(sizes)
        start, stop = int(bounds[1]), int(bounds[2])
        if size == new and stop in (old, new):
            return f"[{start}:{new}{bounds[3]}]"
        return f"[{start}:{min(stop, size or stop)}{bounds[3]}]"

    text = instruction.attributes.get("slice", "")
    instruction.set_attributes(instruction.attributes_text.replace(text, _SLICE.sub(change, text)))
