"""Tiled transposes through shared memory.

Source: xla/service/gpu/ir_emission_utils.cc.
"""

from __future__ import annotations

from typing import NamedTuple

from fusionscope.graph.layouts import (
    NormalTranspose,
    normal_transpose,
    sizes,
)
from fusionscope.graph.mutable import MutableInstruction

_BANKS = 32  # of shared memory, each of 32 bits
_BANK_BITS = 32
_LEAST_ROWS_PER_BANK_VALUE = 10
SMALLEST_SIDE = 16
_SMALLER_SIDE = 8
_SMALLEST_AREA = 64 * 128  # of a tile with the smaller side
_WIDEST_MINOR_BITS = 64
_OF_THREE = ((1, 0), (0, 2, 1), (2, 1, 0))


class TiledTranspose(NamedTuple):
    """A transpose with a tiled emitter: its form, and its shared memory in bytes. ``packed_tile``
    holds the tile sizes if elements share a bank, and is None otherwise.
    """

    form: NormalTranspose
    bits: int
    shared_memory: int
    packed_tile: PackedTile | None


class PackedTile(NamedTuple):
    """``sizes`` are those of the result in canonical form, ``tile`` those of one block."""

    sizes: tuple[int, ...]
    tile: tuple[int, ...]


def tiled_transpose(instruction: MutableInstruction) -> TiledTranspose | None:
    """Return None if there is no tiled emitter. Source: GetDescriptionForTiledTransposeEmitter."""
    return _tiled_transpose(instruction, packs=True)


def unpacked_transpose(instruction: MutableInstruction) -> TiledTranspose | None:
    """Return the transpose of emitters before spring 2025, which pack no elements into a bank."""
    return _tiled_transpose(instruction, packs=False)


def _tiled_transpose(instruction: MutableInstruction, *, packs: bool) -> TiledTranspose | None:
    if instruction.opcode != "transpose":
        return None
    form = normal_transpose(
        instruction.operands[0].shape, instruction.shape, instruction.attribute("dimensions")
    )
    if form is None or len(form.permutation) < 2:
        return None
    bits = instruction.shape.bits
    packed = _packed_tile(form, bits) if packs else None
    if packed is not None:
        values = _BANK_BITS // bits
        return TiledTranspose(form, bits, _BANKS * (_BANK_BITS // 8) * _BANKS * values, packed)
    minor = form.sizes[-1]
    if form.permutation[-1] == len(form.sizes) - 1:
        wide = bits * minor
        narrower = min(form.source_sizes[-2], form.sizes[-2])
        if wide <= _WIDEST_MINOR_BITS and wide * narrower >= 8 * SMALLEST_SIDE:
            return TiledTranspose(form, bits, bytes_of_tile(wide), None)
        return None
    if _is_large(form.source_sizes[-1], minor) and bits != 4:
        return TiledTranspose(form, bits, bytes_of_tile(bits), None)
    return None


def _is_large(first: int, second: int) -> bool:
    smaller = min(first, second)
    return smaller >= SMALLEST_SIDE or (
        smaller >= _SMALLER_SIDE and first * second >= _SMALLEST_AREA
    )


def tiled_transpose_of_three(transpose: MutableInstruction) -> TiledTranspose | None:
    """Return the same for the emitters that write LLVM IR. They tile matrices, and three dimensions
    of which the last one moves. Source: GetDescriptionForTiledTransposeEmitter of October 2024.
    """
    if transpose.opcode != "transpose":
        return None
    permutation, extents = transpose.attribute("dimensions"), sizes(transpose.shape)
    if permutation not in _OF_THREE:
        return None
    if not _is_large(sizes(transpose.operands[0].shape)[-1], extents[-1]):
        return None
    if permutation == (1, 0):
        permutation, extents = (0, 2, 1), (1, *extents)
    bits = transpose.shape.bits
    return TiledTranspose(NormalTranspose(extents, permutation), bits, bytes_of_tile(bits), None)


def bytes_of_tile(bits: int) -> int:
    """Return the bytes of a square tile, with an extra column that keeps rows apart in banks."""
    return -(-_BANKS * (_BANKS + 1) * bits // 8)


def _packed_tile(form: NormalTranspose, bits: int) -> PackedTile | None:
    """Source: PackedTransposeDescription and GetPackedTransposeTileSizes."""
    if bits >= _BANK_BITS:
        return None
    result, permutation = list(form.sizes), list(form.permutation)
    if permutation[-1] != len(result) - 1:
        permutation.append(len(result))
        result.append(1)
    rank = len(result)
    if permutation[rank - 3] != rank - 3:
        result.insert(rank - 2, 1)
        permutation = [dimension + (dimension > rank - 3) for dimension in permutation]
        permutation.insert(rank - 2, rank - 2)
        rank += 1
    source = [0] * rank
    for place, size in zip(permutation, result, strict=True):
        source[place] = size
    second = permutation[rank - 2]  # the source of the second-minor dimension of the result
    values = _BANK_BITS // bits
    side = _BANKS * values
    tile_one = min(source[rank - 2], side)
    tile_between = min(source[rank - 3], side // tile_one)
    tile_two = min(source[second], side)
    columns = tile_between * tile_one
    least = _LEAST_ROWS_PER_BANK_VALUE * values
    if columns < least or tile_two < least:
        return None
    if (
        source[-1] != 1
        or tile_two % values != 0
        or columns % values != 0
        or source[second] % tile_two % values != 0
    ):
        return None
    tile = [1] * rank
    tile[permutation.index(rank - 2)] = tile_one
    tile[rank - 2] = tile_two
    tile[rank - 3] = tile_between
    return PackedTile(tuple(result), tuple(tile))
