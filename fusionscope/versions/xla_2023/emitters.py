"""Heroes and tiled transposes in XLA of early 2023.

Source: xla/service/gpu/ir_emission_utils.cc of February 2023.
"""

from __future__ import annotations

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.emitters import TransposeTiling
from fusionscope.gpu.transposes import SMALLEST_SIDE, TiledTranspose, bytes_of_tile
from fusionscope.graph.layouts import (
    NormalTranspose,
    has_default_layout,
    minor_to_major,
    reshape_is_bitcast,
    sizes,
    transpose_is_bitcast,
)
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise


def find_hero(
    body: FusionBody, root: MutableInstruction, tiled: TransposeTiling
) -> MutableInstruction:
    """The search continues outside of the fusion, and beyond tiled instructions."""
    return find_non_trivial_hero(root)


def find_non_trivial_hero(instruction: MutableInstruction) -> MutableInstruction:
    """Return the first instruction above ``instruction``, or itself, that is not elementwise or
    that has another user.

    Source: FindNonTrivialHero of February 2023.
    """
    while _is_intermediate(instruction):
        instruction = instruction.operands[0]
    return instruction


def _is_intermediate(instruction: MutableInstruction) -> bool:
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


def tiled_transpose(instruction: MutableInstruction) -> TiledTranspose | None:
    """Return the tiled transpose behind ``instruction``. Source: FindAnyTiledTranspose."""
    return _tiled_hero(find_non_trivial_hero(instruction))


def _tiled_hero(hero: MutableInstruction) -> TiledTranspose | None:
    """Return the swap of two runs of dimensions, after a third that stays or none. Source:
    FindTiledTranspose, FindTiledLogicalTranspose, ShapeUtil::FindTranspose021Helper.
    """
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
    if min(extents[1:]) < SMALLEST_SIDE:
        return None
    bits = hero.shape.bits
    return TiledTranspose(NormalTranspose(extents, (0, 2, 1)), bits, bytes_of_tile(bits), None)
