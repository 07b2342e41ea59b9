"""The effect of consecutive reshapes and transposes on the order of elements.

Source: xla/hlo/analysis/shape_tracker.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TypeAlias

from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape

View: TypeAlias = tuple[tuple[int, int], ...]
"""Strides and extents, both in elements, of the dimensions in which a buffer is read, major ones
first; no extent is 1."""


@dataclass(frozen=True, slots=True)
class ShapeTracker:
    """Maps the elements of ``source`` to those of ``result``, dimensions of two shapes of
    ``element_type``. Each of ``views`` reads, in its order, the elements that the previous one
    yields.

    A single element has no order.
    """

    element_type: str
    source: tuple[int, ...]
    result: tuple[int, ...]
    views: tuple[View, ...]

    @staticmethod
    def unchanged(shape: Shape) -> ShapeTracker:
        extents = sizes(shape)
        return ShapeTracker(shape.element_type, extents, extents, (_whole(extents),))

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing moves, and both shapes are the same. Source: GetSteps."""
        return self.source == self.result and not self.has_transpose()

    @property
    def _is_single(self) -> bool:
        return prod(self.result) == 1

    def with_element_type(self, element_type: str) -> ShapeTracker:
        return replace(self, element_type=element_type)

    def after(self, instruction: MutableInstruction) -> ShapeTracker | None:
        """Return the tracker with an instruction that makes ``source`` prepended. Return None if
        the instruction does more than move elements, or makes something else. Source:
        PrependInstruction.
        """
        shape = instruction.shape
        if sizes(shape) != self.source or shape.element_type != self.element_type:
            return None
        if instruction.opcode == "transpose":
            permutation: tuple[int, ...] = instruction.attribute("dimensions")
            if permutation == tuple(range(len(permutation))):
                return self
            inverse = tuple(permutation.index(place) for place in range(len(permutation)))
            return self.inverted()._transposed(inverse).inverted()
        operand = instruction.operands[0].shape if instruction.operands else shape
        if instruction.opcode == "reshape":
            return self.inverted()._reshaped(sizes(operand)).inverted()
        if instruction.opcode == "bitcast":
            appended = self.inverted()._reinterpreted(shape, operand)
            return None if appended is None else appended.inverted()
        return None

    def then(self, instruction: MutableInstruction) -> ShapeTracker | None:
        """Return the tracker with an instruction that reads ``result`` appended. Return None if the
        instruction does more than move elements, or reads something else. Source:
        AppendInstruction.
        """
        if not instruction.operands:
            return None
        operand = instruction.operands[0].shape
        if sizes(operand) != self.result or operand.element_type != self.element_type:
            return None
        if instruction.opcode == "transpose":
            return self._transposed(instruction.attribute("dimensions"))
        if instruction.opcode == "reshape":
            return self._reshaped(sizes(instruction.shape))
        if instruction.opcode == "bitcast":
            return self._reinterpreted(operand, instruction.shape)
        return None

    def inverted(self) -> ShapeTracker:
        """Source: GetInverted."""
        found = ShapeTracker(self.element_type, self.result, self.result, (_whole(self.result),))
        if self._is_single:
            return replace(found, result=self.source)
        for view in reversed(self.views):
            extents, permutation = _as_transpose(view)
            found = found._reshaped(tuple(extents[place] for place in permutation))
            inverse = tuple(permutation.index(place) for place in range(len(permutation)))
            found = found._transposed(inverse)
        return found._reshaped(self.source)

    def _reshaped(self, extents: tuple[int, ...]) -> ShapeTracker:
        return replace(self, result=extents)

    def _transposed(self, permutation: Sequence[int]) -> ShapeTracker:
        """Source: AppendTranspose."""
        result = tuple(self.result[place] for place in permutation)
        if self._is_single:
            return replace(self, result=result)
        extents = [extent for extent in self.result if extent != 1]
        views = list(self.views)
        parts = _unflattened(views[-1], extents)
        if parts is None:
            views.append(_whole(self.result))
            parts = _unflattened(views[-1], extents) or []
        places = [
            sum(extent != 1 for extent in self.result[:place])
            for place in permutation
            if self.result[place] != 1
        ]
        views[-1] = _merged([pair for place in places for pair in parts[place]])
        return replace(self, result=result, views=_folded(views))

    def _reinterpreted(self, source: Shape, result: Shape) -> ShapeTracker | None:
        """Append a bitcast: a reshape, a transpose and a reshape. Source: AppendBitcast."""
        if source.element_count != result.element_count:
            return None
        if self._is_single:
            return self._reshaped(sizes(result))
        parts = _common_parts(source, result)
        if parts is None:
            return None
        by_source = sorted(range(len(parts)), key=lambda place: parts[place][1])
        by_result = sorted(range(len(parts)), key=lambda place: parts[place][2])
        return (
            self._reshaped(tuple(parts[place][0] for place in by_source))
            ._transposed([by_source.index(place) for place in by_result])
            ._reshaped(sizes(result))
        )

    def has_transpose(self) -> bool:
        """Whether elements change their order. Source: GetSteps."""
        if prod(self.source) == 1:
            return False
        permutations = [_as_transpose(view)[1] for view in self.views]
        return any(permutation != sorted(permutation) for permutation in permutations)

    def maps_to_one_stride(self, dimensions: Sequence[int]) -> bool:
        """Return whether the elements of some dimensions of the source are in adjacent dimensions
        of the result, in the same order. Source: MapsToOneStride.
        """
        if not self.maps_to_one_section(dimensions):
            return False
        if all(self.source[dimension] == 1 for dimension in dimensions):
            return True
        narrowed = self._narrowed(dimensions)
        return narrowed is not None and not narrowed.has_transpose()

    def maps_to_one_section(self, dimensions: Sequence[int]) -> bool:
        """Return whether they are in adjacent dimensions of the result, in any order."""
        mapped = self.mapped(dimensions)
        return mapped is not None and all(
            extent == 1
            for place, next_place in pairwise(mapped)
            for extent in self.result[place + 1 : next_place]
        )

    def mapped(self, dimensions: Sequence[int]) -> list[int] | None:
        """Return the dimensions of the result that hold the elements of some dimensions of the
        source, or None if they also hold others. Source: MapInputDimensionsToOutputUnordered.
        """
        strides = _strides(self.source)
        nontrivial = [
            (strides[dimension], self.source[dimension])
            for dimension in dimensions
            if self.source[dimension] != 1
        ]
        if not nontrivial:
            return []
        sliced = self._sliced(_merged(sorted(nontrivial, reverse=True)))
        if sliced is None:
            return None
        parts = _unflattened(self.views[-1], self.result)
        if parts is None:
            return None
        places = []
        for place, part in enumerate(parts):
            if self.result[place] == 1:
                continue
            common = _intersection(part, sliced[1])
            if common is None:
                return None
            if common:
                if common != part:
                    return None
                places.append(place)
        return places

    def _narrowed(self, dimensions: Sequence[int]) -> ShapeTracker | None:
        """Return the tracker for some dimensions of the source only. Source: Narrow."""
        order = sorted(dimensions)
        extents = tuple(self.source[place] for place in order)
        source = ShapeTracker(self.element_type, extents, extents, (_whole(extents),))
        if all(extent == 1 for extent in extents):
            return source._reshaped(())
        ranks = sorted(range(len(dimensions)), key=lambda place: dimensions[place])
        if ranks != list(range(len(ranks))):
            inverse = tuple(ranks.index(place) for place in range(len(ranks)))
            source = source.inverted()._transposed(inverse).inverted()
        strides = _strides(self.source)
        sliced = self._sliced(tuple((strides[place], self.source[place]) for place in order))
        if sliced is None:
            return None
        views = list(source.views)
        for view in sliced[0]:
            views.append(view)
            views = list(_folded(views))
        return replace(
            source, result=tuple(extent for _, extent in sliced[0][-1]), views=tuple(views)
        )

    def _sliced(self, slice_: View) -> tuple[list[View], View] | None:
        """Return the parts of the views that a part of the source passes through, and its final
        part.

        Source: SliceProjectionChain.
        """
        views: list[View] = []
        for view in self.views:
            common = _intersection(view, slice_)
            if common is None:
                return None
            packed = _packed(view)
            following = []
            for stride, extent in common:
                target = next(
                    (
                        packed_stride * (stride // view_stride)
                        for (view_stride, view_extent), (packed_stride, _) in zip(
                            view, packed, strict=True
                        )
                        if stride % view_stride == 0
                        and stride * extent <= view_stride * view_extent
                    ),
                    None,
                )
                if target is None:
                    return None
                following.append((target, extent))
            if prod(extent for _, extent in common) != prod(extent for _, extent in slice_):
                return None
            views.append(common)
            views = list(_folded(views))
            views[-1] = _packed(views[-1])
            slice_ = tuple(following)
        return views, slice_


def _whole(extents: Sequence[int]) -> View:
    return ((1, prod(extents)),)


def _strides(extents: Sequence[int]) -> list[int]:
    return [prod(extents[place + 1 :]) for place in range(len(extents))]


def _merged(pairs: Sequence[tuple[int, int]]) -> View:
    """Return the view with contiguous dimensions merged. Source: MergeAdjacentDimensions."""
    merged: list[tuple[int, int]] = []
    for stride, extent in pairs:
        if merged and stride * extent == merged[-1][0]:
            merged[-1] = (stride, merged[-1][1] * extent)
        else:
            merged.append((stride, extent))
    return tuple(merged)


def _packed(view: View) -> View:
    """Return the same order without gaps. Source: Pack."""
    strides = [0] * len(view)
    running = 1
    for place in sorted(range(len(view)), key=lambda place: view[place][0]):
        strides[place] = running
        running *= view[place][1]
    return tuple((stride, extent) for stride, (_, extent) in zip(strides, view, strict=True))


def _as_transpose(view: View) -> tuple[list[int], list[int]]:
    """Return the operand's extents, major first, and its permutation (AsTransformation)."""
    order = sorted(range(len(view)), key=lambda place: -view[place][0])
    permutation = [order.index(place) for place in range(len(view))]
    return [view[place][1] for place in order], permutation


def _unflattened(view: View, extents: Sequence[int]) -> list[View] | None:
    """Return the parts of a view that are dimensions of these extents. Source: TryUnflatten."""
    parts: list[View] = []
    place = 0
    stride, remaining = view[0]
    for extent in extents:
        part = []
        while extent > 1:
            size = min(remaining, extent)
            if remaining % size or extent % size:
                return None
            part.append((stride * (remaining // size), size))
            extent //= size
            remaining //= size
            if remaining == 1:
                place += 1
                if place < len(view):
                    stride, remaining = view[place]
                elif extent > 1:
                    return None
        parts.append(tuple(part))
    return parts


def _folded(views: Sequence[View]) -> tuple[View, ...]:
    """Return the views with the last ones combined if possible. Source: TryFoldProjections."""
    folded = list(views)
    while len(folded) > 1:
        extents, permutation = _as_transpose(folded[-1])
        parts = _unflattened(folded[-2], extents)
        if parts is None:
            break
        folded[-2:] = [_merged([pair for place in permutation for pair in parts[place]])]
    return tuple(folded)


def _intersection(view: View, second: View) -> View | None:
    """Return what two views have in common, or None for no view. Source: TryIntersectWith."""
    normal = _merged(sorted(second, key=lambda pair: -pair[0]))
    common: list[tuple[int, int]] = []
    for stride, extent in view:
        for other_stride, other_extent in normal:
            low, high = sorted((stride, other_stride))
            if high % low:
                return None
            end = min(stride * extent, other_stride * other_extent)
            if end <= high:
                continue
            if end % high:
                return None
            common.append((high, end // high))
    return tuple(common)


def _common_parts(source: Shape, result: Shape) -> list[tuple[int, int, int]] | None:
    """Return the runs of elements, in the order of memory, that both shapes contain as a whole:
    their extents, and their dimensions in both. Source: BuildPhysicalDimensions.
    """
    orders = [minor_to_major(source), minor_to_major(result)]
    extents = [
        [sizes(shape)[dimension] for dimension in order]
        for shape, order in zip((source, result), orders, strict=True)
    ]
    places, rests = [0, 0], [1, 1]
    parts: list[tuple[int, int, int]] = []
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        for side in (0, 1):
            if rests[side] == 1 and places[side] < len(orders[side]):
                rests[side] = extents[side][places[side]]
        size = min(rests)
        first_part, second_part = (
            order[min(place, len(order) - 1)] if order else 0
            for place, order in zip(places, orders, strict=True)
        )
        parts.append((size, first_part, second_part))
        if any(remainder % size for remainder in rests):
            return None
        for side in (0, 1):
            rests[side] //= size
            if rests[side] == 1:
                places[side] += 1
    return parts[::-1]
