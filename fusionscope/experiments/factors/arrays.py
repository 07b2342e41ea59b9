"""Factors in the arrays: sizes, types, layouts and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

from fusionscope.experiments.cut import Cut
from fusionscope.experiments.factors.change import Change
from fusionscope.experiments.resize import resized
from fusionscope.graph.layouts import minor_to_major
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Layout, Shape

_FEW = 4  # of several equal things, how many are changed one by one
_SCALES = ((1, 8), (8, 1), (1, 64), (64, 1))  # of one dimension, as fractions
_SCALES_OF_ONE, _SCALES_OF_OTHER = ((1, 2), (2, 1)), ((1, 8), (8, 1))  # two at once
_OTHER_TYPES = {"f32": ("bf16", "s32"), "bf16": ("f32",), "f16": ("f32",), "s32": ("f32",)}


class Sizes:
    """The size of a dimension: smaller and larger ones."""

    __slots__ = ()
    name = "size"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for numerator, denominator in _SCALES:
            for size in _sizes(cut)[:_FEW]:
                if size * numerator % denominator:
                    continue
                change = self.change(cut, size, size * numerator // denominator)
                if change is not None:
                    yield change

    @staticmethod
    def change(cut: Cut, old: int, new: int) -> Change | None:
        """Return the change of the size ``old`` to ``new``, if it is possible."""
        resized_cut = resized(cut, old, new)
        return (
            None
            if resized_cut is None
            else Change("the dimension", str(old), str(new), resized_cut)
        )


class TwoSizes:
    """The sizes of two dimensions at once."""

    __slots__ = ()
    name = "two sizes"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for sizes in permutations(_sizes(cut)[:_FEW], 2):
            for scales in product(_SCALES_OF_ONE, _SCALES_OF_OTHER):
                parts = list(zip(sizes, scales, strict=True))
                if any(size * times % divisor for size, (times, divisor) in parts):
                    continue
                steps = [(size, size * times // divisor) for size, (times, divisor) in parts]
                if steps[0][1] == sizes[1]:
                    steps.reverse()  # the two must stay apart
                changed: Cut | None = cut
                for old, new in steps:
                    changed = resized(changed, old, new) if changed is not None else None
                if changed is not None:
                    before, after = (
                        " and ".join(map(str, step)) for step in zip(*steps, strict=True)
                    )
                    yield Change("two dimensions", before, after, changed)


def _sizes(cut: Cut) -> list[int]:
    """Return the sizes of the pair's dimensions, the most frequent first."""
    by_name = {instruction.name: instruction for instruction in cut.module.entry.instructions}
    counts: dict[int, int] = {}
    for name in (cut.producer, cut.consumer):
        shapes = [by_name[name].shape, *(operand.shape for operand in by_name[name].operands)]
        for shape in shapes:
            for size in shape.dimensions:
                if size is not None and size > 1:
                    counts[size] = counts.get(size, 0) + 1
    return sorted(counts, key=lambda size: -counts[size])


class ElementType:
    """The element type of the arrays."""

    __slots__ = ()
    name = "element type"

    def changes(self, cut: Cut) -> Iterator[Change]:
        by_name = {instruction.name: instruction for instruction in cut.module.entry.instructions}
        shape = by_name[cut.producer].shape
        if shape.is_array and cut.around in ("the pair", "other users"):
            for element_type in _OTHER_TYPES.get(shape.element_type, ()):
                yield Change(
                    "the element type",
                    shape.element_type,
                    element_type,
                    _retyped(cut, shape, element_type),
                )


def _retyped(cut: Cut, model: Shape, element_type: str) -> Cut:
    """Return the cut with ``element_type`` wherever the element type of ``model`` is."""
    opened = cut.edit()

    def change(shape: Shape) -> Shape:
        if shape.is_tuple:
            return replace(shape, elements=tuple(map(change, shape.elements)))
        return (
            replace(shape, element_type=element_type)
            if shape.element_type == model.element_type
            else shape
        )

    for instruction in opened.graph.walk():
        instruction.shape = change(instruction.shape)
    return opened.close()


class Layouts:
    """The layout of parameters and results: the opposite order of dimensions."""

    __slots__ = ()
    name = "layout"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        value = opened.chain()[-1].shape
        if not value.is_array or value.rank < 2:
            return
        for parameter in (*opened.entry.parameters, *opened.results):
            parameter.shape = _turned(parameter.shape)
        opened.fit_results()
        order = minor_to_major(value)
        before, after = str(Layout(order)), str(Layout(order[::-1]))
        yield Change("the layout", before, after, opened.close())


def _turned(shape: Shape) -> Shape:
    """Return ``shape`` with the opposite order of dimensions in memory; a tuple as it is."""
    if not shape.is_array or shape.rank < 2:
        return shape
    return replace(shape, layout=Layout(minor_to_major(shape)[::-1]))


class Ranks:
    """The rank of elementwise operations: one dimension instead of several."""

    __slots__ = ()
    name = "rank"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        rank = opened.producer.shape.rank
        inside = [
            instruction
            for instruction in opened.entry.instructions
            if instruction is not opened.entry.root
        ]
        if rank < 2 or not all(map(_can_be_flat, inside)):
            return
        for operation in inside:
            if operation.shape.rank:
                operation.shape = _flat(operation.shape)
        opened.fit_results()
        yield Change("the number of dimensions", str(rank), "1", opened.close())


def _can_be_flat(instruction: MutableInstruction) -> bool:
    """Return whether the operation treats all elements alike, wherever they are."""
    if not instruction.shape.is_array or None in instruction.shape.dimensions:
        return False
    if instruction.opcode == "broadcast":
        return not instruction.operands[0].shape.rank
    if instruction.opcode == "constant":
        return not instruction.shape.rank
    return instruction.opcode == "parameter" or is_elementwise(instruction)


def _flat(shape: Shape) -> Shape:
    return Shape(shape.element_type, (shape.element_count,), (False,), Layout((0,)))
