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


def round_between(one: int, other: int) -> int | None:
    """Return the roundest number between two, that with the highest power of two as a divisor; None
    if none is between them. A reshape that divides a dimension can divide a round one, too.
    """
    low, high = sorted((one, other))
    for bit in reversed(range(high.bit_length())):
        found = ((low >> bit) + 1) << bit
        if found < high:
            return found
    return None


def resized(cut: Cut, old: int, new: int) -> Cut | None:
    """Return ``cut`` with dimensions of ``new`` elements in place of ``old``, wherever these are,
    or None if that is not a valid program or changes nothing.
    """
    opened = cut.edit()
    for each in opened.entry.post_order():
        if each is opened.entry.root:
            opened.fit_results()
            continue
        shape = _resize(each, old, new)
        if shape is None:
            return None
        each.shape = shape
    try:
        made = opened.close()
    except UnusableInput:
        return None
    return None if to_text(made.module) == to_text(cut.module) else made


def _resize(each: MutableInstruction, old: int, new: int) -> Shape | None:
    if each.opcode in _FIXED:
        return each.shape if old not in each.shape.dimensions else None
    if each.opcode == "slice":
        _resize_slice(each, old, new)
    if each.opcode == "dynamic-slice" and old in (each.attribute("dynamic_slice_sizes") or ()):
        return None
    if each.opcode in _FREE:
        sizes = tuple(new if size == old else size for size in each.shape.dimensions)
        made = replace(each.shape, dimensions=sizes)
        if each.opcode == "reshape" and made.element_count != each.operands[0].shape.element_count:
            return _rebalanced(each, made)
        return made
    operation = Operation(
        each.opcode,
        [operand.shape for operand in each.operands],
        [called.root.shape for called in each.called],
        each.attributes,
    )
    found = infer_shape(operation)
    if found is None or found.is_tuple != each.shape.is_tuple:
        return each.shape if not any(_has(o.shape, new) for o in each.operands) else None
    if found.is_tuple:
        pairs = zip(found.elements, each.shape.elements, strict=True)
        return replace(each.shape, elements=tuple(_sized(one, like) for one, like in pairs))
    return _sized(found, each.shape)


def _has(shape: Shape, size: int) -> bool:
    return size in shape.dimensions or any(size in each.dimensions for each in shape.elements)


def _sized(found: Shape, like: Shape) -> Shape:
    return replace(like, dimensions=found.dimensions)


def _rebalanced(reshape: MutableInstruction, made: Shape) -> Shape | None:
    """Return the shape of ``reshape`` with one dimension changed so that the elements fit."""
    wanted, sizes = reshape.operands[0].shape.element_count, list(made.dimensions)
    for place in reversed(range(len(sizes))):
        size = sizes[place] or 1
        others = made.element_count // size if size else 0
        if others and size > 1 and wanted % others == 0:
            sizes[place] = wanted // others
            return replace(made, dimensions=tuple(sizes))
    return None


def _resize_slice(each: MutableInstruction, old: int, new: int) -> None:
    """Let a slice that ends with its operand end with it still."""
    sizes = iter(zip(each.operands[0].shape.dimensions, strict=True))

    def change(found: re.Match[str]) -> str:
        (size,) = next(sizes)
        start, stop = int(found[1]), int(found[2])
        if size == new and stop in (old, new):
            return f"[{start}:{new}{found[3]}]"
        return f"[{start}:{min(stop, size or stop)}{found[3]}]"

    text = each.attributes.get("slice", "")
    each.attributes_text = each.attributes_text.replace(text, _SLICE.sub(change, text))
    each._attributes = None
    each._values = None
