"""Checks whether a fusion around a dot can be tiled for one of Triton's initial block sizes.

Source: xla/backends/gpu/transforms/convert_triton_gemm_config.cc,
FindBlockLevelParametersWithTilingSpace; the sizes are those of
xla/backends/gpu/autotuner/triton/default_configs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from fusionscope.dump.device import CudaCapability, Device
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.tiling.computation import Sources
from fusionscope.gpu.tiling.propagation import Numbers, TilePropagation
from fusionscope.gpu.tiling.tile import DimensionTile, Grid, OfRoot, Source
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction


class Blocks(NamedTuple):
    """Elements of the dot's two result dimensions, and of the contracted one, that one block
    computes at a time.
    """

    rows: int
    columns: int
    depth: int


def _read(text: str) -> tuple[Blocks, ...]:
    return tuple(Blocks(*map(int, text_of_blocks.split("x"))) for text_of_blocks in text.split())


_AMPERE = _read(
    """16x8x128 16x32x64 64x8x16 64x8x128 64x16x16 64x64x16 64x64x32 64x128x16 64x128x64 64x128x128
    128x8x32 128x16x64 128x32x16 128x32x64 128x64x16 128x64x128 128x128x16 128x128x32 128x256x16
    128x256x32 128x256x64 256x8x16"""
)
_HOPPER = _read(
    """16x8x16 16x16x128 16x32x64 64x8x64 64x8x128 64x16x256 64x32x64 64x64x16 64x64x32 64x128x64
    64x128x128 128x8x32 128x16x64 128x32x64 128x64x16 128x64x32 128x64x128 128x128x16 128x128x32
    128x128x64 128x256x64 128x256x128 256x128x64"""
)
_BLACKWELL = _read(
    """16x16x128 32x16x64 32x16x256 32x32x32 64x16x128 64x16x256 64x32x64 64x64x16 64x64x64
    64x64x128 64x128x16 64x128x64 128x16x128 128x16x256 128x32x64 128x64x128 128x128x64 128x128x128
    128x128x256 128x256x16 128x256x32 128x256x64 256x16x32 256x16x64 256x64x64 256x64x128
    256x128x32 256x256x32"""
)


_CONSUMER_BLACKWELL = _read(
    """16x8x16 16x8x32 16x8x64 16x8x128 16x16x16 16x16x32 16x16x64 16x16x128 16x32x16 16x32x32
    16x32x64 32x8x64 32x8x128 32x16x16 32x16x32 32x16x64 32x16x128 32x16x256 32x32x16 32x32x32
    32x32x64 32x32x128 32x64x16 32x64x32 32x64x64 32x64x128 64x8x16 64x8x32 64x8x64 64x8x256
    64x16x16 64x32x16 64x32x32 64x32x64 64x32x128 64x64x16 64x64x32 64x64x64 64x64x128 64x128x16
    64x128x32 64x128x64 128x8x16 128x8x32 128x16x16 128x16x32 128x32x16 128x64x16 128x64x32
    256x8x16 256x8x64 256x16x32 256x16x64"""
)
_BY_GENERATION = {8: _AMPERE, 9: _HOPPER, 10: _BLACKWELL}


def blocks_of(device: Device) -> tuple[Blocks, ...] | None:
    """Return the initial block sizes for a device, or None if it is not an NVIDIA GPU.

    Source: xla/backends/gpu/autotuner/triton.cc, GetDefaultTritonConfigs.
    """
    capability = device.capability
    if not isinstance(capability, CudaCapability):
        return None
    return _BY_GENERATION.get(capability.major, _CONSUMER_BLACKWELL)


class TiledDot:
    """The tiles of all instructions of a body with a dot, for any block sizes.

    ``is_tileable`` is false if no sizes give tiles.
    """

    def __init__(self, body: FusionBody, dot: MutableInstruction) -> None:
        self._body = body
        self._dot = dot
        self._propagation = TilePropagation()
        self._sources = Sources()
        self._dot_tile: Numbers = ()
        self.root = body.roots[0]
        self._extents = list(sizes(self.root.shape))
        depths = dot.attribute("lhs_contracting_dims")
        self._extents += [sizes(dot.operands[0].shape)[place] for place in depths]
        self.is_tileable = self._tile()

    def _tile(self) -> bool:
        rank = self.root.shape.rank
        tile = tuple(
            self._sources.register(OfRoot(place, extent))
            for place, extent in enumerate(self._extents[:rank])
        )
        pending = [(self.root, tile)]
        visited: set[tuple[MutableInstruction, Numbers]] = set()
        while pending:
            instruction, tile = pending.pop()
            if (
                (instruction, tile) in visited
                or instruction not in self._body
                or not instruction.operands
            ):
                continue
            visited.add((instruction, tile))
            if instruction is self._dot:
                self._dot_tile = tile
            if instruction.opcode == "dot":
                tiles = self._of_dot(instruction, tile)
            else:
                operand_tiles = self._propagation.operands(
                    instruction, tile, self._sources.register, is_outermost=False
                )
                if isinstance(operand_tiles, str):
                    return False
                tiles = operand_tiles
            pending += zip(self._body.operands(instruction), tiles, strict=True)
        return True

    def _of_dot(self, dot: MutableInstruction, result: Numbers) -> list[Numbers]:
        """Source: PropagateTileToInputForDotOp."""
        rank = self.root.shape.rank
        depths = [
            self._sources.register(OfRoot(number, extent))
            for number, extent in enumerate(self._extents[rank:], rank)
        ]
        batch = dot.attribute("lhs_batch_dims") or ()
        free = iter(result[len(batch) :])
        tiles: list[Numbers] = []
        for side, operand in zip(("lhs", "rhs"), dot.operands, strict=True):
            places = dict(zip(dot.attribute(f"{side}_batch_dims") or (), result, strict=False))
            places.update(zip(dot.attribute(f"{side}_contracting_dims"), depths, strict=True))
            tiles.append(
                tuple(
                    places[place] if place in places else next(free)
                    for place in range(operand.shape.rank)
                )
            )
        return tiles

    def fits_any(self, blocks: tuple[Blocks, ...]) -> bool:
        """Return whether some tiles of the root make the dot compute one of these blocks."""
        rank = self.root.shape.rank
        if rank < 2 or len(self._dot_tile) < 2:
            return False
        tiles = _DotTiles(rank, tuple(self._extents), tuple(self._sources), self._dot_tile)
        return _fits_any(tiles, blocks)


class _DotTiles(NamedTuple):
    """What decides which blocks a dot can compute: the ``rank`` of the root, the extents of its
    dimensions and of the contracted ones, all sources of tiles, and the numbers of the dot's own.
    """

    rank: int
    extents: tuple[int, ...]
    sources: tuple[Source, ...]
    dot_tile: Numbers

    def fits(self, blocks: Blocks) -> bool:
        expected = [1] * (len(self.dot_tile) - 2) + [blocks.rows, blocks.columns]
        return any(
            self._fits([*tile_sizes, blocks.depth], expected)
            for tile_sizes in _orders(self.rank, blocks.rows, blocks.columns)
        )

    def _fits(self, tile_sizes: Sequence[int], expected: Sequence[int]) -> bool:
        counts = [-(-extent // size) for extent, size in zip(self.extents, tile_sizes, strict=True)]
        grid = Grid(tile_sizes, counts)
        tiles: list[DimensionTile] = []
        for source in self.sources:
            tile = source.tile([tiles[number] for number in source.inputs], grid)
            if tile is None:
                return False
            tiles.append(tile)
        return [tiles[number].size for number in self.dot_tile] == expected


@lru_cache(maxsize=1 << 12)
def _fits_any(tiles: _DotTiles, blocks: tuple[Blocks, ...]) -> bool:
    """Return whether one of the blocks fits. Cached, since repeated layers have equal shapes, and
    the pass checks a fusion again for each instruction that it may add.
    """
    return any(map(tiles.fits, blocks))


def _orders(rank: int, rows: int, columns: int) -> Iterator[tuple[int, ...]]:
    """Yield all tile sizes that consist of the two sizes, and 1 for other dimensions."""
    for row_place, column_place in permutations(range(rank), 2):
        order = [1] * rank
        order[row_place], order[column_place] = rows, columns
        yield tuple(order)
