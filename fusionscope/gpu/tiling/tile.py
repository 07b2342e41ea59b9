"""Tiles of one dimension, and their propagation from an instruction to its operands.

Source: xla/codegen/tiling/experimental/tile.h, tile_propagation.cc.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from fusionscope.gpu.tiling.expression import (
    ZERO,
    Expression,
    Simplifier,
    add,
    canonical,
    constant,
    delinearized,
    is_multiple,
    linearized,
    maximum,
    minimum,
    multiply,
    strides,
    subtract,
    value_at_zero,
    value_of,
    variable,
)


@dataclass(frozen=True, slots=True)
class DimensionTile:
    """In one dimension, ``size`` elements ``offset``, ``offset + stride`` and so on, as far as they
    are below ``bound``. The variables count the tiles of the root.
    """

    offset: Expression
    size: int
    stride: int
    bound: Expression


@dataclass(frozen=True, slots=True)
class Grid:
    """One tiling of the root: elements of a tile per dimension, and numbers of tiles."""

    sizes: Sequence[int]
    counts: Sequence[int]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Return the first and the last index of a tile in each dimension."""
        return [(0, count - 1) for count in self.counts]


class Source(ABC):
    """The source of a dimension's tile. ``inputs`` are the indices of the sources that it is
    computed from.
    """

    __slots__ = ()

    inputs: tuple[int, ...]

    @property
    def dimensions(self) -> frozenset[int]:
        """The dimensions of the root whose tiles it is computed from directly."""
        return frozenset()

    @abstractmethod
    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        """Return the tile, or None if the tiles of the inputs do not give one."""


@dataclass(frozen=True, slots=True)
class OfRoot(Source):
    """A dimension of the root."""

    dimension: int
    extent: int
    inputs: tuple[int, ...] = ()

    @property
    def dimensions(self) -> frozenset[int]:
        return frozenset({self.dimension})

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile:
        size = grid.sizes[self.dimension]
        offset = ZERO if size >= self.extent else multiply(variable(self.dimension), size)
        return DimensionTile(offset, size, 1, constant(self.extent))


@dataclass(frozen=True, slots=True)
class Whole(Source):
    """A whole dimension."""

    extent: int
    inputs: tuple[int, ...] = ()

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile:
        return DimensionTile(ZERO, power_of_two(self.extent), 1, constant(self.extent))


@dataclass(frozen=True, slots=True)
class Sliced(Source):
    """The part that a slice reads."""

    inputs: tuple[int, ...]
    start: int
    stride: int

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile:
        result = inputs[0]
        return DimensionTile(
            add(constant(self.start), multiply(result.offset, self.stride)),
            result.size,
            result.stride * self.stride,
            add(multiply(result.bound, self.stride), self.start),
        )


@dataclass(frozen=True, slots=True)
class Padded(Source):
    """The part that a pad reads, with ``low`` elements before it."""

    inputs: tuple[int, ...]
    low: int
    extent: int

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile:
        result = inputs[0]
        return DimensionTile(
            add(result.offset, -self.low), result.size, result.stride, constant(self.extent)
        )


@dataclass(frozen=True, slots=True)
class Concatenated(Source):
    """The part that a concatenation of ``extents`` reads of operand ``slot`` in its dimension."""

    inputs: tuple[int, ...]
    extents: tuple[int, ...]
    slot: int

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        result = inputs[0]
        if not _is_aligned(result, self.extents):
            return None
        start = constant(-sum(self.extents[: self.slot]))
        bound = minimum(add(result.bound, start), constant(self.extents[self.slot]))
        return DimensionTile(
            add(result.offset, start), result.size, result.stride, maximum(bound, ZERO)
        )


@dataclass(frozen=True, slots=True)
class Collapsed(Source):
    """The one dimension that a reshape makes of several of ``extents``."""

    inputs: tuple[int, ...]
    extents: tuple[int, ...]

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        if not _is_one_run(inputs, self.extents):
            return None
        offset = linearized(self.extents, [tile.offset for tile in inputs])
        ends = [
            minimum(add(tile.offset, (tile.size - 1) * tile.stride), add(tile.bound, -1))
            for tile in inputs
        ]
        last = linearized(self.extents, ends)
        step = inputs[-1].stride
        for tile, stride in zip(reversed(inputs), reversed(strides(self.extents)), strict=True):
            if tile.size != 1:
                step = tile.stride * stride
                break
        simplify = Simplifier(grid.ranges, replaces_points=True).simplify
        size = prod(tile.size for tile in inputs)
        return DimensionTile(simplify(offset), size, step, simplify(add(last, 1)))


@dataclass(frozen=True, slots=True)
class Expanded(Source):
    """The dimension ``place`` of ``extents``, which a reshape makes of one dimension."""

    inputs: tuple[int, ...]
    extents: tuple[int, ...]
    place: int

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        source = inputs[0]
        simplify = Simplifier(grid.ranges, replaces_points=True).simplify
        last = add(source.offset, (source.size - 1) * source.stride)
        tiles = []
        for first, end in zip(
            delinearized(self.extents, source.offset), delinearized(self.extents, last), strict=True
        ):
            size = value_of(simplify(add(subtract(end, first), 1)))
            if size is None:
                return None
            tiles.append(DimensionTile(simplify(first), size, 1, simplify(add(end, 1))))
        if not _is_spread(source.stride, tiles, self.extents):
            return None
        return tiles[self.place]


def power_of_two(number: int) -> int:
    """Return the least power of two that is not below ``number``."""
    return 1 << (number - 1).bit_length() if number > 1 else number


def _is_aligned(tile: DimensionTile, extents: Sequence[int]) -> bool:
    """Return whether no tile of a concatenation reads two operands.

    A tile that begins before the concatenation, since another one reads it, must be aligned too;
    this is newer than the source. Source: VerifyConcatenateAlignment.
    """
    offset = value_at_zero(tile.offset)
    if not is_multiple(canonical(subtract(tile.offset, constant(offset))), tile.size):
        return False
    first = max(offset, 0)
    if (first - offset) % tile.size:
        return False
    ends = list(accumulate(extents))
    slot = bisect_right(ends, first)
    if slot == len(ends):
        return False
    if slot < len(extents) - 1 and (ends[slot] - first) % tile.size:
        return False
    return all(extent % tile.size == 0 for extent in extents[slot + 1 : -1])


def _is_one_run(tiles: Sequence[DimensionTile], extents: Sequence[int]) -> bool:
    """Return whether tiles of several dimensions are one tile of the dimension that they collapse
    to.

    Source: VerifyReshapeContiguity, collapse.
    """
    strided = [place for place, tile in enumerate(tiles[:-1]) if tile.stride > 1]
    if strided:
        return len(strided) == 1 and _only_has_elements(strided[0], tiles)
    return _has_one_partial(tiles, extents, collapses=True)


def _is_spread(stride: int, tiles: Sequence[DimensionTile], extents: Sequence[int]) -> bool:
    """Return whether a tile of that stride expands to ``tiles`` of several dimensions.

    Source: VerifyReshapeContiguity, expand.
    """
    if stride > 1:
        outer = strides(extents)[:-1]
        places = [place for place in reversed(range(len(outer))) if outer[place] == stride]
        return bool(places) and _only_has_elements(places[0], tiles)
    return _has_one_partial(tiles, extents, collapses=False)


def _only_has_elements(place: int, tiles: Sequence[DimensionTile]) -> bool:
    """Return whether all other tiles have one element."""
    return all(tile.size == 1 or position == place for position, tile in enumerate(tiles))


def _has_one_partial(
    tiles: Sequence[DimensionTile], extents: Sequence[int], *, collapses: bool
) -> bool:
    """Return whether at most one dimension is partial, with single elements before it and whole
    dimensions after it.
    """
    first = next((place for place, tile in enumerate(tiles) if tile.size != 1), len(tiles))
    all_single = True
    for place in reversed(range(first + 1, len(tiles))):
        tile = tiles[place]
        if extents[place] in (tile.size, tile.size * tile.stride):
            all_single = tile.size == 1
        elif not (collapses and tile.size == 1 and all_single):
            return False
    return True
