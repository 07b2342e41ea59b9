"""Properties of layouts, and the transposes and reshapes that are bitcasts.

Source of all: xla/shape_util.cc and xla/layout_util.cc.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from fusionscope.hlo.shape import Shape


def sizes(shape: Shape) -> tuple[int, ...]:
    """Return the dimensions, in elements; unbounded ones count as 1."""
    return tuple(1 if size is None else size for size in shape.dimensions)


def minor_to_major(shape: Shape) -> tuple[int, ...]:
    """Return the dimensions from the contiguous one on."""
    if shape.layout is None:
        return tuple(reversed(range(shape.rank)))
    return shape.layout.minor_to_major


def has_default_layout(shape: Shape) -> bool:
    """Return whether dimensions are laid out from the last (contiguous) to the first."""
    order = minor_to_major(shape)
    return all(more > less for more, less in pairwise(order))


def are_consecutive(shape: Shape, dimensions: tuple[int, ...]) -> bool:
    """Return whether ``dimensions`` are adjacent in memory (AreDimensionsConsecutive)."""
    order = minor_to_major(shape)
    places = sorted(order.index(dimension) for dimension in dimensions)
    return all(high - low == 1 for low, high in pairwise(places))


def transpose_is_bitcast(source: Shape, result: Shape, permutation: tuple[int, ...]) -> bool:
    """Return whether no element moves in memory. ``permutation`` holds the source dimension of each
    dimension of the result (TransposeIsBitcast, ignoring element types).
    """
    moved = tuple(permutation[dimension] for dimension in minor_to_major(result))
    return moved == minor_to_major(source)


@lru_cache(maxsize=4096)
def reshape_is_bitcast(source: Shape, result: Shape) -> bool:
    """Return whether no element moves in memory (ReshapeIsBitcast, ignoring element types)."""
    if source.element_count != result.element_count:
        return False
    return source.element_count == 0 or (
        _units_stay(source, result) and _units_stay(result, source)
    )


def _units_stay(source: Shape, result: Shape) -> bool:
    """Return whether each dimension has the same stride in the source and in the result."""
    steps, result_steps = _strides(source), _strides(result)
    size, result_size = sizes(source), sizes(result)
    for dimension, extent in enumerate(size):
        if extent <= 1:
            continue
        remainder, place = prod(size[dimension + 1 :]), 0
        for axis in reversed(range(len(result_size))):
            place += remainder % result_size[axis] * result_steps[axis]
            remainder //= result_size[axis]
        if place != steps[dimension]:
            return False
    return True


def _strides(shape: Shape) -> list[int]:
    """Return the stride in memory, in elements, of each dimension."""
    size, step = sizes(shape), 1
    strides = [0] * shape.rank
    for dimension in minor_to_major(shape):
        strides[dimension] = step
        step *= size[dimension]
    return strides


def permutation_of_bitcast(source: Shape, result: Shape) -> tuple[int, ...] | None:
    """Return the permutation with which a bitcast is a transpose, or None.

    Source: DeduceTransposeDimensionsForBitcast.
    """
    if source.rank != result.rank:
        return None
    permutation = [0] * result.rank
    for from_dimension, to_dimension in zip(
        minor_to_major(source), minor_to_major(result), strict=True
    ):
        permutation[to_dimension] = from_dimension
    size = sizes(source)
    return (
        tuple(permutation)
        if sizes(result) == tuple(size[source_dimension] for source_dimension in permutation)
        else None
    )


def same_elements_in_memory(first: Shape, second: Shape) -> bool:
    """Return whether both read the same memory in the same order: equal shapes, or a reshape or
    transpose that moves nothing (IsReshapeOrTransposeBitcast, ignoring element types).
    """
    return (
        (first.dimensions == second.dimensions and minor_to_major(first) == minor_to_major(second))
        or reshape_is_bitcast(first, second)
        or permutation_of_bitcast(first, second) is not None
    )


class NormalTranspose(NamedTuple):
    """A transpose without dimensions of 1, and with adjacent dimensions merged: the sizes of the
    result, and the source dimension of each of its dimensions.
    """

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]

    @property
    def source_sizes(self) -> tuple[int, ...]:
        source_sizes = [0] * len(self.sizes)
        for place, size in zip(self.permutation, self.sizes, strict=True):
            source_sizes[place] = size
        return tuple(source_sizes)


@lru_cache(maxsize=4096)
def normal_transpose(
    source: Shape, result: Shape, permutation: tuple[int, ...]
) -> NormalTranspose | None:
    """Return None if a layout is not the default one (GetNormalizedLogicalTransposeShape)."""
    if not (has_default_layout(source) and has_default_layout(result)):
        return None
    places = [
        (place, size) for place, size in zip(permutation, sizes(result), strict=True) if size != 1
    ]
    merged: list[list[int]] = []  # the first source dimension of a run, and its size
    rank = {place: index for index, place in enumerate(sorted(place for place, _ in places))}
    last = None
    for place, size in places:
        if last is not None and rank[place] == last + 1:
            merged[-1][1] *= size
        else:
            merged.append([rank[place], size])
        last = rank[place]
    starts = sorted(start for start, _ in merged)
    return NormalTranspose(
        tuple(size for _, size in merged),
        tuple(starts.index(start) for start, _ in merged),
    )
