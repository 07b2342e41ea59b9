"""Propagates the tile of an instruction's result to its operands.

Source: xla/codegen/tiling/experimental/tile_propagation.cc, reshape_analysis.cc.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from fusionscope.gpu.tiling.tile import (
    Collapsed,
    Concatenated,
    Expanded,
    OfRoot,
    Padded,
    Sliced,
    Source,
    Whole,
    power_of_two,
)
from fusionscope.graph.layouts import (
    minor_to_major,
    permutation_of_bitcast,
    reshape_is_bitcast,
    sizes,
)
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise

Numbers: TypeAlias = tuple[int, ...]
"""The sources of the dimensions of one tile, by their numbers."""

Register: TypeAlias = Callable[[Source], int]
"""Gives a source its number."""

NONE_FOUND = "No valid tilings found."

Item = TypeVar("Item")

_SLICE = re.compile(r"\[(\d+):\d+(?::(\d+))?\]")


class Propagation(ABC):
    """How one compiler version gets from the tiles of the root to all others. If it
    ``checks_last``, it looks for problems once all have tiles.
    """

    checks_last = False

    @abstractmethod
    def tile_sizes(self, extent: int) -> list[int]:
        """Return the tile sizes that are tried in a dimension of the root: all of it, then the
        smaller powers of two. Source: GetFlatTilingsForInputSpace.
        """

    @abstractmethod
    def given(self, tile_sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the actual tile sizes for the given ones."""

    @abstractmethod
    def root(self, extents: Sequence[int], register: Register) -> Numbers:
        """Return the tile of the root."""

    @abstractmethod
    def problem(self, instruction: MutableInstruction, tile: Numbers, *, is_inside: bool) -> str:
        """Return why an instruction cannot have this tile, in the compiler's words, or ""."""

    @property
    def can_fail(self) -> bool:
        """Whether there is an ``error`` for any sizes."""
        return False

    def error(self, tile_sizes: Sequence[int]) -> str:
        """Return the compiler's message if it gives up on all tilings at one of these sizes."""
        return ""

    @abstractmethod
    def operands(
        self,
        instruction: MutableInstruction,
        tile: Numbers,
        register: Register,
        *,
        is_outermost: bool,
    ) -> list[Numbers] | str:
        """Return the tile of each operand, or the compiler's message if there is none. The operands
        of a concatenation are not outermost.
        """


class TilePropagation(Propagation):
    """Derives tiles of operands from those of results. All sizes are powers of two."""

    def tile_sizes(self, extent: int) -> list[int]:
        whole = power_of_two(max(extent, 1))
        return [whole >> shift for shift in range(whole.bit_length())]

    def given(self, tile_sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(power_of_two(max(size, 1)) for size in tile_sizes)

    def root(self, extents: Sequence[int], register: Register) -> Numbers:
        return tuple(register(OfRoot(place, extent)) for place, extent in enumerate(extents))

    def problem(self, instruction: MutableInstruction, tile: Numbers, *, is_inside: bool) -> str:
        return ""

    def operands(
        self,
        instruction: MutableInstruction,
        tile: Numbers,
        register: Register,
        *,
        is_outermost: bool,
    ) -> list[Numbers] | str:
        tiles = _operand_tiles(instruction, tile, register)
        return NONE_FOUND if tiles is None else tiles


def _operand_tiles(
    instruction: MutableInstruction, result: Numbers, register: Register
) -> list[Numbers] | None:
    """Return the tile of each operand, or None if the compiler does not support the instruction."""
    opcode = instruction.opcode
    operands = instruction.operands
    if opcode == "all-reduce" or is_elementwise(instruction):
        return [result] * len(operands)
    if opcode == "broadcast":
        dimensions: Numbers = instruction.attribute("dimensions")
        return [tuple(result[dimension] for dimension in dimensions)]
    if opcode == "transpose":
        return [inverted(result, instruction.attribute("dimensions"))]
    if opcode in ("bitcast", "reshape"):
        tile = _reinterpreted(instruction, result, register)
        return None if tile is None else [tile]
    if opcode == "reduce":
        return _of_reduce(instruction, result, register)
    if opcode == "slice":
        return [_of_slice(instruction, result, register)]
    if opcode == "concatenate":
        return _of_concatenate(instruction, result, register)
    if opcode == "pad":
        return _of_pad(instruction, result, register)
    return None


def inverted(result: Sequence[Item], permutation: Numbers) -> tuple[Item, ...]:
    """Return the operand's tile, whose dimension ``permutation[i]`` is i of the result."""
    by_place = dict(zip(permutation, result, strict=True))
    return tuple(by_place[place] for place in range(len(result)))


def _of_reduce(
    instruction: MutableInstruction, result: Numbers, register: Register
) -> list[Numbers]:
    """Return the tiles of the inputs, with whole reduced dimensions, then of the initial values."""
    inputs = len(instruction.operands) // 2
    reduced = instruction.attribute("dimensions")
    tile_sizes = iter(result)
    tile = tuple(
        register(Whole(extent)) if dimension in reduced else next(tile_sizes)
        for dimension, extent in enumerate(sizes(instruction.operands[0].shape))
    )
    return [tile] * inputs + [()] * inputs


def _of_slice(instruction: MutableInstruction, result: Numbers, register: Register) -> Numbers:
    return tuple(
        register(Sliced((source,), start, stride))
        for source, (start, stride) in zip(result, read_slice(instruction), strict=True)
    )


def read_slice(instruction: MutableInstruction) -> list[tuple[int, int]]:
    """Return the first element and the stride of a slice in each dimension."""
    limits = _SLICE.findall(instruction.attributes["slice"])
    return [(int(start), int(stride or 1)) for start, stride in limits]


def _of_concatenate(
    instruction: MutableInstruction, result: Numbers, register: Register
) -> list[Numbers]:
    place: int = instruction.attribute("dimensions")[0]
    extents = tuple(sizes(operand.shape)[place] for operand in instruction.operands)
    return [
        (
            *result[:place],
            register(Concatenated((result[place],), extents, slot)),
            *result[place + 1 :],
        )
        for slot in range(len(extents))
    ]


def _of_pad(
    instruction: MutableInstruction, result: Numbers, register: Register
) -> list[Numbers] | None:
    """Return None if there is padding between elements."""
    tile = []
    padding = instruction.attributes["padding"].split("x") if result else []
    for source, extent, written in zip(
        result, sizes(instruction.operands[0].shape), padding, strict=True
    ):
        low, _, *interior = (int(number) for number in written.split("_"))
        if any(interior):
            return None
        tile.append(register(Padded((source,), low, extent)))
    return [tuple(tile), ()]


def _reinterpreted(
    instruction: MutableInstruction, result: Numbers, register: Register
) -> Numbers | None:
    """Return the tile through a reshape, or a bitcast, which is a transpose, a reshape or both."""
    shape, target = instruction.shape, instruction.operands[0].shape
    if shape.element_count != target.element_count:
        return None
    if instruction.opcode == "bitcast":
        permutation = permutation_of_bitcast(shape, target) if shape.rank else None
        if permutation is not None:
            return tuple(result[place] for place in permutation)
        if not reshape_is_bitcast(shape, target):
            order = tuple(reversed(minor_to_major(shape)))
            target_order = tuple(reversed(minor_to_major(target)))
            reshaped = _reshaped(
                tuple(result[place] for place in order),
                tuple(sizes(shape)[place] for place in order),
                tuple(sizes(target)[place] for place in target_order),
                register,
            )
            return None if reshaped is None else inverted(reshaped, target_order)
    return _reshaped(result, sizes(shape), sizes(target), register)


def _reshaped(
    tile: Numbers, extents: Sequence[int], target: Sequence[int], register: Register
) -> Numbers | None:
    """Return the tile of a shape with the same elements. Source: PropagateTileThroughReshape."""
    source_tiles = [
        (source, extent) for source, extent in zip(tile, extents, strict=True) if extent != 1
    ]
    target_extents = [extent for extent in target if extent != 1]
    tiles: list[int] = []
    start = end = 0
    while end < len(source_tiles):
        # The fewest dimensions with as many elements as the fewest of the target.
        size, target_size, target_end = 1, 1, len(tiles)
        while size != target_size or end == start:
            if size <= target_size:
                size *= source_tiles[end][1]
                end += 1
            else:
                target_size *= target_extents[target_end]
                target_end += 1
        sources = tuple(source for source, _ in source_tiles[start:end])
        parts = tuple(target_extents[len(tiles) : target_end])
        if len(sources) == len(parts) == 1:
            tiles += sources
        elif len(parts) == 1:
            tiles.append(
                register(Collapsed(sources, tuple(extent for _, extent in source_tiles[start:end])))
            )
        elif len(sources) == 1:
            tiles += [register(Expanded(sources, parts, place)) for place in range(len(parts))]
        else:
            return None
        start = end
    remaining = iter(tiles)
    return tuple(next(remaining) if extent != 1 else register(Whole(1)) for extent in target)
