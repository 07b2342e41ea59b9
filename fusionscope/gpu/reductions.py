"""Reductions with a dedicated emitter, and their canonical form.

Source: xla/service/gpu/reduction_utils.cc.
"""

from __future__ import annotations

from typing import NamedTuple

from fusionscope.dump.device import Device
from fusionscope.graph.layouts import are_consecutive, minor_to_major, sizes
from fusionscope.graph.mutable import MutableInstruction

# An earlier pass splits rows of more elements.
_LONGEST_ROW = 1024 * 16
_MOST_ROWS_IN_BATCH = 8
_COLUMN_TILE = 128


class Reduction(NamedTuple):
    """A reduction in three dimensions, from major to minor: of a row (reduced, kept, reduced) or of
    a column (kept, reduced, kept).
    """

    is_row: bool
    major: int
    middle: int
    minor: int


def normal_reduction(reduce: MutableInstruction) -> Reduction:
    """Source: GetReductionKindAndContiguousComponents."""
    shape = reduce.operands[0].shape
    reduced = reduced_dimensions(reduce)
    remaining = tuple(dimension for dimension in range(shape.rank) if dimension not in reduced)
    if not remaining:
        return Reduction(True, 1, 1, shape.element_count)
    if are_consecutive(shape, remaining):
        major, middle, minor = _parts(reduce, remaining)
        if middle == 1:
            return Reduction(True, 1, 1, major * minor)
        if minor == 1:
            return Reduction(False, 1, major, middle)
        return Reduction(True, major, middle, minor)
    major, middle, minor = _parts(reduce, reduced)
    if minor == 1:
        return Reduction(True, 1, major, middle)
    return Reduction(False, major, middle, minor)


def reduced_dimensions(reduce: MutableInstruction) -> tuple[int, ...]:
    dimensions: tuple[int, ...] = reduce.attribute("dimensions")
    return dimensions


def _parts(reduce: MutableInstruction, middle: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the numbers of elements that are more major in memory than ``middle``, in it, and more
    minor.

    Source: PartitionShapeByMiddleDimensions.
    """
    shape = reduce.operands[0].shape
    size = sizes(shape)
    parts = [1, 1, 1]
    current = 2
    for dimension in minor_to_major(shape):
        inside = dimension in middle
        if (current == 2 and inside) or (current == 1 and not inside):
            current -= 1
        parts[current] *= size[dimension]
    return parts[0], parts[1], parts[2]


def has_reduction_emitter(instruction: MutableInstruction, device: Device) -> bool:
    """Return whether the dedicated emitter is faster than a loop: an unnested reduction, in XLA's
    terms.

    Source: IsReductionFromOrToContiguousDimensions.
    """
    if instruction.opcode != "reduce":
        return False
    shape = instruction.operands[0].shape
    reduced = reduced_dimensions(instruction)
    remaining = tuple(dimension for dimension in range(shape.rank) if dimension not in reduced)
    if not (are_consecutive(shape, remaining) or are_consecutive(shape, reduced)):
        return False
    return _is_faster_than_loop(normal_reduction(instruction), device.threads_per_warp)


def _is_faster_than_loop(reduction: Reduction, warp: int) -> bool:
    """Source: IsUnnestedReductionFasterThanElemental."""
    if reduction.is_row:
        return reduction.minor >= warp or (reduction.minor > 0 and warp % reduction.minor == 0)
    major, minor = reduction.middle, reduction.minor
    return not (
        major < warp
        or (major < 2 * warp and minor < warp)
        or (major < 4 * warp and minor < 8)
        or (major < 8 * warp and minor < 3)
    )


def is_reduction_hero(root: MutableInstruction, hero: MutableInstruction, device: Device) -> bool:
    """Return whether ``hero`` makes ``root`` a reduction. Source: IsRealReductionHero."""
    if not has_reduction_emitter(hero, device):
        return False
    return root is hero or is_race_free(hero, device)


def is_race_free(reduce: MutableInstruction, device: Device) -> bool:
    """Return whether one block reduces all inputs of an element. Source: ReductionIsRaceFree."""
    reduction = normal_reduction(reduce)
    if reduction.is_row:
        return reduction.minor <= _LONGEST_ROW and reduction.major <= _MOST_ROWS_IN_BATCH
    return reduction.middle <= device.threads_per_warp * _COLUMN_TILE
