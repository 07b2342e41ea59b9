"""Swaps a bitcast with a broadcast or a transpose.

Source: xla/backends/gpu/transforms/bitcast_utils.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import NamedTuple

from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Layout, Shape


class Exchanged(NamedTuple):
    """The shape and dimensions after the swap. The shape is that of the new bitcast if the bitcast
    came last, or else of the new broadcast or transpose; its element type may have to be replaced.
    """

    shape: Shape
    dimensions: tuple[int, ...]


def with_type_of(shape: Shape, model: Shape) -> Shape:
    """Return a shape with the element type of ``model``. Source: CopyElementType."""
    if shape.element_type == model.element_type:
        return shape
    layout = shape.layout
    if layout is not None:
        layout = replace(layout, properties=model.layout.properties if model.layout else "")
    return replace(shape, element_type=model.element_type, layout=layout)


def bitcast_of_broadcast(broadcast: MutableInstruction, result: Shape) -> Exchanged | None:
    """Swap a bitcast of a broadcast. Return None if it mixes new dimensions with those of the
    operand.

    Source: CalculateBitcastOfBroadcast.
    """
    shape = broadcast.shape
    operand_dimensions = set(broadcast.attribute("dimensions"))
    order, result_order = minor_to_major(shape), minor_to_major(result)
    extents = _physical(shape)
    dimensions: list[int] = []
    for (start, old_start), (end, old_end) in _groups(_physical(result), extents):
        is_from_operand = {
            order[place] in operand_dimensions
            for place in range(old_start, old_end)
            if extents[place] != 1
        }
        if is_from_operand == {True, False}:
            return None
        if is_from_operand == {True}:
            dimensions += result_order[start:end]
    dimensions.sort()
    places = {dimension: place for place, dimension in enumerate(dimensions)}
    return Exchanged(
        _array(
            result.element_type,
            [sizes(result)[dimension] for dimension in dimensions],
            [places[position] for position in result_order if position in places],
        ),
        tuple(dimensions),
    )


def broadcast_of_bitcast(broadcast: MutableInstruction, operand: Shape) -> Exchanged | None:
    """Swap a broadcast of a bitcast of ``operand``.

    Source: CalculateBroadcastOfBitcast.
    """
    bitcast, result = broadcast.operands[0].shape, broadcast.shape
    dimensions: tuple[int, ...] = broadcast.attribute("dimensions")
    order, result_order = minor_to_major(bitcast), minor_to_major(result)
    ranges: dict[int, tuple[int, int]] = {}
    for (start, old_start), (end, old_end) in _groups(_physical(bitcast), _physical(operand)):
        places = []
        for place in range(start, end):
            dimension = dimensions[order[place]]
            ranges[dimension] = (old_start, old_end)
            old_start = old_end
            places.append(result_order.index(dimension))
        if not _are_beside(places, end - start):
            return None
    extents = dict(enumerate(sizes(operand)))
    new_order: list[int] = []
    for dimension in result_order:
        if dimension in ranges:
            new_order += minor_to_major(operand)[slice(*ranges[dimension])]
        else:
            new_order.append(len(extents))
            extents[len(extents)] = sizes(result)[dimension]
    return Exchanged(
        _array(
            operand.element_type, [extents[position] for position in range(len(extents))], new_order
        ),
        tuple(range(operand.rank)),
    )


def bitcast_of_transpose(transpose: MutableInstruction, result: Shape) -> Exchanged | None:
    """Swap a bitcast of a transpose. Source: CalculateBitcastOfTranspose."""
    exchanged = _through_transpose(
        transpose,
        result,
        transpose.shape,
        transpose.operands[0].shape,
        transpose.attribute("dimensions"),
    )
    return None if exchanged is None else Exchanged(exchanged.shape, _inverse(exchanged.dimensions))


def transpose_of_bitcast(transpose: MutableInstruction, operand: Shape) -> Exchanged | None:
    """Swap a transpose of a bitcast of ``operand``. Source: CalculateTransposeOfBitcast."""
    return _through_transpose(
        transpose,
        operand,
        transpose.operands[0].shape,
        transpose.shape,
        _inverse(transpose.attribute("dimensions")),
    )


def _through_transpose(
    transpose: MutableInstruction,
    result: Shape,
    transposed: Shape,
    operand: Shape,
    permutation: Sequence[int],
) -> Exchanged | None:
    """Source: CalculateBitcastOfTransposeImpl."""
    if minor_to_major(transpose.shape) != minor_to_major(transpose.operands[0].shape):
        return None
    order, operand_order = minor_to_major(transposed), minor_to_major(operand)
    result_order = minor_to_major(result)
    ranges = [(0, 0)] * operand.rank
    groups = _groups(_physical(result), _physical(transposed), merges_empty=True)
    for (start, old_start), (end, old_end) in groups:
        size = prod(_physical(result)[start:end])
        places = []
        for place in range(old_start, old_end):
            position = operand_order.index(permutation[order[place]])
            if _physical(transposed)[place] == 1 and size > 1:
                ranges[position] = (start, start)
                continue
            ranges[position] = (start, end)
            start = end
            places.append(position)
        if places and not _are_beside(places, len(places)):
            return None
    extents = [0] * result.rank
    dimensions = [0] * result.rank
    targets = iter(result_order)
    for span in ranges:
        for place in range(*span):
            target = next(targets, None)
            if target is None:
                return None
            extents[target] = sizes(result)[result_order[place]]
            dimensions[target] = result_order[place]
    return Exchanged(_array(result.element_type, extents, result_order), tuple(dimensions))


def _are_beside(places: Sequence[int], count: int) -> bool:
    return places[-1] - places[0] < count and list(places) == sorted(places) if places else True


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(permutation.index(place) for place in range(len(permutation)))


def _physical(shape: Shape) -> list[int]:
    """Return the extents, minor ones first."""
    return [sizes(shape)[dimension] for dimension in minor_to_major(shape)]


def _array(element_type: str, extents: Sequence[int], order: Sequence[int]) -> Shape:
    layout = Layout(tuple(order)) if extents else None
    return Shape(element_type, tuple(extents), (False,) * len(extents), layout)


def _groups(
    first: Sequence[int], second: Sequence[int], *, merges_empty: bool = False
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the smallest runs of dimensions of both with equally many elements: their bounds in
    both. Source: CommonFactors, CommonFactorsMergingTrivialRanges.
    """
    bounds = _common_factors(first, second)
    place = 0
    while merges_empty and place + 1 < len(bounds) > 2:
        start, end = bounds[place : place + 2]
        if start[0] != end[0] and start[1] != end[1]:
            place += 1
        else:
            del bounds[place if place + 2 == len(bounds) else place + 1]
    return list(pairwise(bounds))


def _common_factors(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    """Source: CommonFactors in xla/tsl's util.cc."""
    if list(first) == list(second):
        return [(place, place) for place in range(len(first) + 1)]
    bounds: list[tuple[int, int]] = []
    i = j = 0
    while i < len(first) and j < len(second) and first[i] == second[j]:
        bounds.append((i, j))
        i, j = i + 1, j + 1
    size = other_size = 1
    while True:
        if size == other_size and (not bounds or (i, j) != bounds[-1]):
            bounds.append((i, j))
            continue
        has, other_has = i < len(first), j < len(second)
        if not (has or other_has):
            return bounds
        equal = size == other_size
        takes = size < other_size or (has and (not other_has or (equal and first[i] <= second[j])))
        other_takes = other_size < size or (
            other_has and (not has or (equal and second[j] <= first[i]))
        )
        if takes:
            size *= first[i]
            i += 1
        if other_takes:
            other_size *= second[j]
            j += 1
