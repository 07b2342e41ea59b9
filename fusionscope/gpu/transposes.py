"""Transposes that go through shared memory, in tiles.

Source: xla/service/gpu/ir_emission_utils.cc.
"""

from __future__ import annotations

from typing import NamedTuple

from fusionscope.gpu.version import Emitters
from fusionscope.graph.layouts import (
    NormalTranspose,
    has_default_layout,
    minor_to_major,
    normal_transpose,
    reshape_is_bitcast,
    sizes,
    transpose_is_bitcast,
)
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise

_BANKS = 32  # of shared memory, each of 32 bits
_BANK_BITS = 32
_LEAST_ROWS_PER_BANK_VALUE = 10
_SMALLEST_SIDE = 16
_SMALLER_SIDE = 8
_SMALLEST_AREA = 64 * 128  # of a tile with the smaller side
_WIDEST_MINOR_BITS = 64
_OLDER_PERMUTATIONS = ((1, 0), (0, 2, 1), (2, 1, 0))


class TiledTranspose(NamedTuple):
    """A transpose with a tiled emitter: its form, and the bytes of shared memory that it takes.
    ``packed_tile`` are its tile sizes where elements share a bank, None where they do not."""

    form: NormalTranspose
    bits: int
    shared_memory: int
    packed_tile: PackedTile | None

    def is_like(self, other: TiledTranspose, emitters: Emitters) -> bool:
        """The older ones do not look at the size of elements. Source:
        TransposeDescription::IsEquivalent."""
        return self.form == other.form and (emitters.is_older or self.bits == other.bits)


class PackedTile(NamedTuple):
    """``sizes`` are those of the result in their canonical form, ``tile`` those of one block."""

    sizes: tuple[int, ...]
    tile: tuple[int, ...]


def tiled_transpose(instruction: MutableInstruction, emitters: Emitters) -> TiledTranspose | None:
    """None where it has no tiled emitter; in 2023 that of what it changes element by element.

    Source: GetDescriptionForTiledTransposeEmitter, FindAnyTiledTranspose.
    """
    if emitters is Emitters.V2023:
        return _earliest_tiled_transpose(climb(instruction))
    if instruction.opcode != "transpose":
        return None
    if emitters is Emitters.V0_4:
        return _older_tiled_transpose(instruction)
    form = normal_transpose(
        instruction.operands[0].shape, instruction.shape, instruction.attribute("dimensions")
    )
    if form is None or len(form.permutation) < 2:
        return None
    bits = instruction.shape.bits
    packed = _packed_tile(form, bits)
    if packed is not None:
        values = _BANK_BITS // bits
        return TiledTranspose(form, bits, _BANKS * (_BANK_BITS // 8) * _BANKS * values, packed)
    minor = form.sizes[-1]
    if form.permutation[-1] == len(form.sizes) - 1:
        wide = bits * minor
        narrower = min(form.source_sizes[-2], form.sizes[-2])
        if wide <= _WIDEST_MINOR_BITS and wide * narrower >= 8 * _SMALLEST_SIDE:
            return TiledTranspose(form, bits, _bytes_of_tile(wide), None)
        return None
    if _is_large(form.source_sizes[-1], minor) and bits != 4:
        return TiledTranspose(form, bits, _bytes_of_tile(bits), None)
    return None


def _is_large(one: int, other: int) -> bool:
    smaller = min(one, other)
    return smaller >= _SMALLEST_SIDE or (smaller >= _SMALLER_SIDE and one * other >= _SMALLEST_AREA)


def _older_tiled_transpose(transpose: MutableInstruction) -> TiledTranspose | None:
    """Of a matrix, or of three dimensions of which the last one becomes another."""
    permutation, extents = transpose.attribute("dimensions"), sizes(transpose.shape)
    if permutation not in _OLDER_PERMUTATIONS:
        return None
    if not _is_large(sizes(transpose.operands[0].shape)[-1], extents[-1]):
        return None
    if permutation == (1, 0):
        permutation, extents = (0, 2, 1), (1, *extents)
    bits = transpose.shape.bits
    return TiledTranspose(NormalTranspose(extents, permutation), bits, _bytes_of_tile(bits), None)


def climb(instruction: MutableInstruction) -> MutableInstruction:
    """What ``instruction`` changes elements of one by one, or nothing, where nobody else reads it.

    Source: FindNonTrivialHero of February 2023.
    """
    while _is_passing_on(instruction):
        instruction = instruction.operands[0]
    return instruction


def _is_passing_on(instruction: MutableInstruction) -> bool:
    """Source: IsIntermediate."""
    if len(instruction.operands) != 1 or len(instruction.users) > 1:
        return False
    source, opcode = instruction.operands[0].shape, instruction.opcode
    if opcode == "reshape":
        same_type = source.element_type == instruction.shape.element_type
        return same_type and reshape_is_bitcast(source, instruction.shape)
    if opcode == "transpose":
        return transpose_is_bitcast(source, instruction.shape, instruction.attribute("dimensions"))
    return opcode == "bitcast" or (is_elementwise(instruction) and opcode != "copy")


def _earliest_tiled_transpose(hero: MutableInstruction) -> TiledTranspose | None:
    """Of two runs of dimensions that change places, behind a third that stays or none. Source:
    FindTiledTranspose, FindTiledLogicalTranspose, ShapeUtil::FindTranspose021Helper."""
    if hero.opcode not in ("copy", "transpose"):
        return None
    source = hero.operands[0].shape
    order = tuple(reversed(minor_to_major(source)))
    if hero.opcode == "copy":
        behind = tuple(reversed(minor_to_major(hero.shape)))
    elif has_default_layout(source) and has_default_layout(hero.shape):
        behind = hero.attribute("dimensions")
    else:
        return None
    places = [behind.index(dimension) for dimension in order]
    merged: list[int] = []  # sizes of runs that stay together
    for index, (place, dimension) in enumerate(zip(places, order, strict=True)):
        size = sizes(source)[dimension]
        if index and place == places[index - 1] + 1:
            merged[-1] *= size
        else:
            merged.append(size)
    if len(merged) == 2:
        extents = 1, merged[1], merged[0]
    elif len(merged) == 3 and places[0] == 0:
        extents = merged[0], merged[2], merged[1]
    else:
        return None
    if min(extents[1:]) < _SMALLEST_SIDE:
        return None
    bits = hero.shape.bits
    return TiledTranspose(NormalTranspose(extents, (0, 2, 1)), bits, _bytes_of_tile(bits), None)


def _bytes_of_tile(bits: int) -> int:
    """Of a square with a column more, so that no two rows meet in a bank; ``bits`` each."""
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
        permutation = [each + (each > rank - 3) for each in permutation]
        permutation.insert(rank - 2, rank - 2)
        rank += 1
    source = [0] * rank
    for place, size in zip(permutation, result, strict=True):
        source[place] = size
    second = permutation[rank - 2]  # where the second-minor dimension of the result comes from
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
