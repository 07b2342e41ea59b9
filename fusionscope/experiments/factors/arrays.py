"""Factors of the arrays: sizes, types, and how they are laid out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusionscope.experiments.cut import Cut
from fusionscope.experiments.factors.change import Change
from fusionscope.experiments.resize import resized
from fusionscope.hlo.shape import Shape

_FEW = 4  # of several equal things, how many are changed one by one
_SCALES = ((1, 8), (8, 1), (1, 64), (64, 1))  # of one dimension, as fractions
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
