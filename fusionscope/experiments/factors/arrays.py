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
    """Arrays are as large as they are: smaller or larger."""

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
        made = resized(cut, old, new)
        return None if made is None else Change("the dimension", str(old), str(new), made)


class TwoSizes:
    """Two dimensions have sizes: both others."""

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
                made: Cut | None = cut
                for old, new in steps:
                    made = resized(made, old, new) if made is not None else None
                if made is not None:
                    before, after = (
                        " and ".join(map(str, each)) for each in zip(*steps, strict=True)
                    )
                    yield Change("two dimensions", before, after, made)


def _sizes(cut: Cut) -> list[int]:
    """Return the sizes of the pair's dimensions, the most frequent first."""
    named = {each.name: each for each in cut.module.entry.instructions}
    found: dict[int, int] = {}
    for name in (cut.producer, cut.consumer):
        shapes = [named[name].shape, *(each.shape for each in named[name].operands)]
        for shape in shapes:
            for size in shape.dimensions:
                if size is not None and size > 1:
                    found[size] = found.get(size, 0) + 1
    return sorted(found, key=lambda size: -found[size])


class ElementType:
    """Arrays have a type: another one."""

    __slots__ = ()
    name = "element type"

    def changes(self, cut: Cut) -> Iterator[Change]:
        named = {each.name: each for each in cut.module.entry.instructions}
        own = named[cut.producer].shape
        if own.is_array and cut.around in ("the pair", "other users"):
            for other in _OTHER_TYPES.get(own.element_type, ()):
                yield Change("the element type", own.element_type, other, _retyped(cut, own, other))


def _retyped(cut: Cut, own: Shape, other: str) -> Cut:
    """Return the cut with ``other`` in place of the element type of ``own``, everywhere."""
    opened = cut.edit()

    def change(shape: Shape) -> Shape:
        if shape.is_tuple:
            return replace(shape, elements=tuple(map(change, shape.elements)))
        return (
            replace(shape, element_type=other) if shape.element_type == own.element_type else shape
        )

    for each in opened.graph.walk():
        each.shape = change(each.shape)
    return opened.close()


class Layouts:
    """Parameters and results are laid out in some order: in the opposite one."""

    __slots__ = ()
    name = "layout"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        value = opened.chain()[-1].shape
        if not value.is_array or value.rank < 2:
            return
        for each in (*opened.entry.parameters, *opened.results):
            each.shape = _turned(each.shape)
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
    """All is elementwise, of several dimensions: of one."""

    __slots__ = ()
    name = "rank"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        rank = opened.producer.shape.rank
        inside = [each for each in opened.entry.instructions if each is not opened.entry.root]
        if rank < 2 or not all(map(_can_be_flat, inside)):
            return
        for each in inside:
            if each.shape.rank:
                each.shape = _flat(each.shape)
        opened.fit_results()
        yield Change("the number of dimensions", str(rank), "1", opened.close())


def _can_be_flat(instruction: MutableInstruction) -> bool:
    """Return whether it treats all elements alike, wherever they are."""
    if not instruction.shape.is_array or None in instruction.shape.dimensions:
        return False
    if instruction.opcode == "broadcast":
        return not instruction.operands[0].shape.rank
    if instruction.opcode == "constant":
        return not instruction.shape.rank
    return instruction.opcode == "parameter" or is_elementwise(instruction)


def _flat(shape: Shape) -> Shape:
    return Shape(shape.element_type, (shape.element_count,), (False,), Layout((0,)))
