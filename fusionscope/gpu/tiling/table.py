"""The tilings of a root, with all figures that do not depend on what a kernel computes.

Kernels whose roots have equal extents have the same tilings, and mostly the same tiles. So each
figure is computed once for all tilings together, and looked up for the next kernel.

Source: xla/service/gpu/model/gpu_indexing_performance_model.cc, EstimateTiledRunTimeDataImpl.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from operator import mul
from typing import NamedTuple, TypeAlias

from fusionscope.dump.device import Device
from fusionscope.gpu.cost.cycles import architecture_of
from fusionscope.gpu.cost.duration import Duration, from_seconds
from fusionscope.gpu.cost.memory import ComputeTime, memory_figures, read_time
from fusionscope.gpu.tiling.computation import Sources
from fusionscope.gpu.tiling.expression import (
    Simplifier,
    delinearized,
    linearized,
    multiply,
    variable,
)
from fusionscope.gpu.tiling.propagation import Numbers
from fusionscope.gpu.tiling.tile import DimensionTile, Grid, Source, power_of_two
from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.hlo.shape import Shape

_REGISTER_SHARE = 0.4  # for one tile, of all registers of a block
_NO_TILE = -1


class Array(NamedTuple):
    """An operand, or the root: its extents in elements, its dimensions from minor to major, and the
    bytes of an element and of all elements.
    """

    extents: tuple[int, ...]
    order: tuple[int, ...]
    element_size: int
    size: int

    @staticmethod
    def of(shape: Shape) -> Array:
        return Array(sizes(shape), minor_to_major(shape), -(-shape.bits // 8), shape.byte_size)


class Part(NamedTuple):
    """One operand of a concatenation: it takes ``part`` of ``whole`` blocks.

    The concatenation has ``tile``; a tiling in which that equals one of its ``earlier`` tiles
    computes it for these alone.
    """

    part: int
    whole: int
    tile: Numbers
    earlier: tuple[Numbers, ...]


Path: TypeAlias = tuple[Part, ...]
"""A region: the operands of concatenations that it is nested in, from the outermost one on."""


class Use(NamedTuple):
    """The tiles of one instruction in one region. Equal ones count once."""

    path: Path
    tiles: tuple[Numbers, ...]


class Read(NamedTuple):
    """The bytes that all blocks read of one operand, and the time that this takes."""

    size: int
    time: Duration


class Write(NamedTuple):
    """The tile of a result in each dimension, and the time that writing it takes."""

    tile_sizes: tuple[int, ...]
    time: Duration


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The tiles of a source: for each tiling the number of a tile. ``dimensions`` are those of the
    root that they depend on, ``exists`` is the set of tilings that have one.
    """

    dimensions: frozenset[int]
    places: list[int]
    exists: int


class TilingTable:
    """The tilings of roots of the same extents on ``device``, in the order of ``grids``.

    A column is a list with one figure for each tiling. A set of tilings is an integer with a bit
    for each. Figures of tilings in which a tile does not exist mean nothing.
    """

    def __init__(self, device: Device, grids: Sequence[Grid]) -> None:
        self.device = device
        self.architecture = architecture_of(device)
        self.most_registers = most_registers(device)
        self.grids = grids
        self.blocks = [prod(grid.counts) for grid in grids]
        self.every = (1 << len(grids)) - 1
        self._transaction_size = memory_figures(device).transaction_size
        self._distinct: list[DimensionTile] = []
        self._places: dict[DimensionTile, int] = {}
        self._sources = Sources()
        self._columns: dict[int, _Tiles] = {}
        self._rows: dict[Numbers, list[tuple[int, ...]]] = {}
        self._elements: dict[Numbers, list[int]] = {}
        self._within: dict[tuple[Numbers, float], int] = {}
        self._path_blocks: dict[Path, list[int]] = {(): self.blocks}
        self._work: dict[Use, list[int]] = {}
        self._writes: dict[Array, list[Duration]] = {}
        self._accesses: dict[tuple[Numbers, Array], list[tuple[int, float]]] = {}
        self._reads: dict[tuple[tuple[Use, ...], Array], list[Read]] = {}
        self._read_times: dict[tuple[int, int, int, float], Duration] = {}
        self._compute_times: dict[tuple[int, int, int], Duration] = {}

    def register(self, source: Source) -> int:
        """Return the number of a source. Its inputs have been registered before."""
        return self._sources.register(source)

    def _find_tiles(self, source: Source) -> _Tiles:
        inputs = [self._columns[number] for number in source.inputs]
        dimensions = source.dimensions.union(*(source.dimensions for source in inputs))
        known: dict[tuple[int, ...], int] = {}
        tile_places: list[int] = []
        for index, grid in enumerate(self.grids):
            key = tuple([grid.sizes[dimension] for dimension in dimensions])
            place = known.get(key)
            if place is None:
                places = [source.places[index] for source in inputs]
                tile = None
                if _NO_TILE not in places:
                    tile = source.tile([self._distinct[place] for place in places], grid)
                place = known[key] = self._place(tile)
            tile_places.append(place)
        exists = set_of(place != _NO_TILE for place in tile_places)
        return _Tiles(dimensions, tile_places, exists)

    def _place(self, tile: DimensionTile | None) -> int:
        if tile is None:
            return _NO_TILE
        place = self._places.setdefault(tile, len(self._distinct))
        if place == len(self._distinct):
            self._distinct.append(tile)
        return place

    def with_tiles(self, numbers: Collection[int]) -> int:
        """Return the set of tilings in which all these sources, with all their inputs, have tiles.
        Columns of figures that depend on them exist from then on.
        """
        tilings = self.every
        for number in sorted(numbers):
            if number not in self._columns:
                self._columns[number] = self._find_tiles(self._sources[number])
            tilings &= self._columns[number].exists
        return tilings

    def has_tiles(self, numbers: Collection[int], grid: Grid) -> bool:
        """Return whether these sources, with all their inputs, have tiles in a tiling that need not
        be one of the table.
        """
        tiles: dict[int, DimensionTile] = {}
        for number in sorted(numbers):
            source = self._sources[number]
            tile = source.tile([tiles[number_of_input] for number_of_input in source.inputs], grid)
            if tile is None:
                return False
            tiles[number] = tile
        return True

    def _rows_of(self, tile: Numbers) -> list[tuple[int, ...]]:
        """Return a column of what equals another one's where the tiles are equal."""
        rows = self._rows.get(tile)
        if rows is None:
            rows = list(zip(*(self._columns[number].places for number in tile), strict=True))
            rows = self._rows[tile] = rows if tile else [()] * len(self.grids)
        return rows

    def elements(self, tile: Numbers) -> list[int]:
        """Return a column of the elements of a tile, with their size in registers."""
        counts = self._elements.get(tile)
        if counts is None:
            counts = self._elements[tile] = [
                prod([power_of_two(self._distinct[place].size) for place in row])
                for row in self._rows_of(tile)
            ]
        return counts

    def within(self, tile: Numbers, limit: float) -> int:
        """Return the set of tilings in which a tile has at most ``limit`` elements."""
        fitting = self._within.get((tile, limit))
        if fitting is None:
            fitting = set_of(elements <= limit for elements in self.elements(tile))
            self._within[tile, limit] = fitting
        return fitting

    def _blocks_of(self, path: Path) -> list[int]:
        """Return a column of the blocks that compute a region."""
        blocks_by_tiling = self._path_blocks.get(path)
        if blocks_by_tiling is None:
            part, whole, tile, earlier = path[-1]
            earlier_rows = [self._rows_of(earlier_tile) for earlier_tile in earlier]
            blocks_by_tiling = self._path_blocks[path] = [
                0 if any(rows[index] == row for rows in earlier_rows) else blocks * part // whole
                for index, (blocks, row) in enumerate(
                    zip(self._blocks_of(path[:-1]), self._rows_of(tile), strict=True)
                )
            ]
        return blocks_by_tiling

    def work(self, use: Use) -> list[int]:
        """Return a column of the elements that all blocks compute of an instruction."""
        products = self._work.get(use)
        if products is None:
            elements: Iterable[int] = self.elements(use.tiles[0])
            if len(use.tiles) > 1:
                rows = zip(*map(self._rows_of, use.tiles), strict=True)
                counts = zip(*map(self.elements, use.tiles), strict=True)
                elements = (
                    sum(dict(zip(row, count, strict=True)).values())
                    for row, count in zip(rows, counts, strict=True)
                )
            products = self._work[use] = list(map(mul, self._blocks_of(use.path), elements))
        return products

    def writes(self, root: Array) -> list[Duration]:
        """Return a column of the time to write the root."""
        times = self._writes.get(root)
        if times is None:
            times = self._writes[root] = []
            for grid in self.grids:
                utilization = self._utilization(root, [(size, 1) for size in grid.sizes])
                bandwidth = int(utilization * self.device.memory_bandwidth)
                times.append(from_seconds(root.size / bandwidth))
        return times

    def further_writes(self, tiles: Sequence[Numbers], array: Array) -> list[Write | None]:
        """Return a column of how a result other than the root is written: of ``tiles`` the last
        one that blocks have as if it were the root's, or None.

        Source: InitializeTiledRoots in xla/codegen/tiling/symbolic_tile_analysis.cc.
        """
        column: list[Write | None] = [None] * len(self.grids)
        for tile in tiles:
            accesses = self._accesses_of(tile, array)
            for index, row in enumerate(self._rows_of(tile)):
                places = [self._distinct[place] for place in row]
                if self._is_written(self.grids[index], places, array):
                    bandwidth = int(accesses[index][1] * self.device.memory_bandwidth)
                    time = from_seconds(array.size / bandwidth)
                    column[index] = Write(tuple(place.size for place in places), time)
        return column

    def _is_written(self, grid: Grid, tiles: Sequence[DimensionTile], array: Array) -> bool:
        """Source: IsSafeForBufferSharing; triton_emitter_constraints.cc, the last check."""
        tile_sizes = tuple(tile.size for tile in tiles)
        if 0 in tile_sizes or prod(map(power_of_two, tile_sizes)) > self.most_registers:
            return False
        counts = grid_of(array.extents, tile_sizes).counts
        if prod(counts) != prod(grid.counts) or not all(
            size in (extent, power_of_two(size))
            for size, extent in zip(tile_sizes, array.extents, strict=True)
        ):
            return False
        block = linearized(grid.counts, [variable(place) for place in range(len(grid.counts))])
        simplify = Simplifier(grid.ranges, replaces_points=True).simplify
        return all(
            simplify(multiply(number, tile.size)) == tile.offset
            for number, tile in zip(delinearized(counts, block), tiles, strict=True)
        )

    def reads(self, uses: tuple[Use, ...], array: Array) -> list[Read]:
        """Return a column of the reads of an operand by all blocks."""
        key = uses, array
        accesses = self._reads.get(key)
        if accesses is None:
            sizes_and_shares = [(0, 1.0)] * len(self.grids)
            for use in uses:
                columns = [
                    (self._rows_of(tile), self._accesses_of(tile, array)) for tile in use.tiles
                ]
                for index, blocks in enumerate(self._blocks_of(use.path)):
                    size, utilization = sizes_and_shares[index]
                    for part, share in {
                        row[index]: column[index] for row, column in columns
                    }.values():
                        size += blocks * part
                        utilization = min(utilization, share)
                    sizes_and_shares[index] = size, utilization
            accesses = self._reads[key] = [
                Read(size, self._read_time(blocks, min(array.size, size), size, utilization))
                for blocks, (size, utilization) in zip(self.blocks, sizes_and_shares, strict=True)
            ]
        return accesses

    def _read_time(self, blocks: int, net: int, total: int, utilization: float) -> Duration:
        key = blocks, net, total, utilization
        duration = self._read_times.get(key)
        if duration is None:
            duration = self._read_times[key] = read_time(self.device, *key)
        return duration

    def _accesses_of(self, tile: Numbers, array: Array) -> list[tuple[int, float]]:
        """Return a column of the bytes that one block reads of an array, and of the share of the
        bandwidth that it uses.
        """
        key = tile, array
        accesses = self._accesses.get(key)
        if accesses is None:
            by_row: dict[tuple[int, ...], tuple[int, float]] = {}
            accesses = self._accesses[key] = []
            for row in self._rows_of(tile):
                access = by_row.get(row)
                if access is None:
                    tiles = [self._distinct[place] for place in row]
                    elements = prod(map(min, [tile.size for tile in tiles], array.extents))
                    runs = [(tile.size, tile.stride) for tile in tiles]
                    access = by_row[row] = (
                        array.element_size * elements,
                        self._utilization(array, runs),
                    )
                accesses.append(access)
        return accesses

    def _utilization(self, array: Array, runs: Sequence[tuple[int, int]]) -> float:
        """Return the share of moved bytes that is used, for the elements that are adjacent.
        ``runs`` are the elements in each dimension, and their stride.

        Source: BandwidthUtilizationRateHeuristicForTiledMemoryAccess in
        xla/service/gpu/model/coalescing_analysis.cc.
        """
        size = array.element_size
        for dimension in array.order:
            (count, stride), extent = runs[dimension], array.extents[dimension]
            if stride != 1:
                break
            size *= min(count, extent)
            if count < extent:
                break
        moved = -(-size // self._transaction_size) * self._transaction_size
        return size / moved if moved else 1.0  # an array without elements moves nothing

    def compute_time(self, flops: int, index: int, warps: int, formula: ComputeTime) -> Duration:
        """Return the time to compute ``flops`` in the tiling ``index``, by the ``formula`` of the
        compiler version whose table this is.
        """
        # More blocks than run at once make no difference.
        key = flops, min(self.blocks[index], self.device.core_count), warps
        duration = self._compute_times.get(key)
        if duration is None:
            threads = warps * self.device.threads_per_warp
            duration = formula(self.device, flops, key[1], threads)
            self._compute_times[key] = duration
        return duration


class TilingTables:
    """The tables of the kernels of one module, by what they depend on: the device, the extents of
    the root and the tile sizes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, TilingTable] = {}

    def of(
        self, device: Device, extents: tuple[int, ...], tile_sizes: tuple[tuple[int, ...], ...]
    ) -> TilingTable:
        """Return the table of all tilings whose tiles fit into registers and whose blocks fit into
        a grid. ``tile_sizes`` are those to try in each dimension.

        Source: VerifyTritonConstraints.
        """
        key = device, extents, tile_sizes
        table = self._known.get(key)
        if table is None:
            fitting = _fitting(device, extents, product(*tile_sizes))
            limit = device.block_dim_limit_x
            grids = [grid for grid in fitting if prod(grid.counts) <= limit]
            table = self._known[key] = TilingTable(device, grids)
        return table

    def of_given(
        self, device: Device, extents: tuple[int, ...], tile_sizes: tuple[int, ...]
    ) -> TilingTable:
        """Return the table of one tiling, or of none if its tiles do not fit into registers."""
        key = device, extents, tile_sizes, "given"
        table = self._known.get(key)
        if table is None:
            grids = list(_fitting(device, extents, [tile_sizes]))
            table = self._known[key] = TilingTable(device, grids)
        return table


def _fitting(
    device: Device, extents: tuple[int, ...], tilings: Iterable[tuple[int, ...]]
) -> Iterator[Grid]:
    most = most_registers(device)
    for tile_sizes in tilings:
        if prod(map(power_of_two, tile_sizes)) <= most:
            yield grid_of(extents, tile_sizes)


def grid_of(extents: tuple[int, ...], tile_sizes: tuple[int, ...]) -> Grid:
    """Return the grid of a root with these extents."""
    counts = [-(-extent // size) for extent, size in zip(extents, tile_sizes, strict=True)]
    return Grid(tile_sizes, counts)


def most_registers(device: Device) -> float:
    """Return the most elements of a tile that is kept in registers."""
    return _REGISTER_SHARE * device.registers_per_block_limit


def set_of(column: Iterable[bool]) -> int:
    """Return the set of the tilings that ``column`` is true for."""
    digits = "".join(["1" if is_in else "0" for is_in in column])
    return int(digits[::-1] or "0", 2)
