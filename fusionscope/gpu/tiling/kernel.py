"""Estimates the run time of a fusion with each tiling.

Source: xla/service/gpu/model/gpu_indexing_performance_model.cc, triton_emitter_constraints.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.cycles import architecture_of, cycles_of
from fusionscope.gpu.cost.duration import INFINITE, Duration, from_seconds
from fusionscope.gpu.cost.memory import combine, compute_time, memory_figures, read_time
from fusionscope.gpu.tiling.computation import Nested, Region, TiledBody
from fusionscope.gpu.tiling.propagation import Numbers, Propagation
from fusionscope.gpu.tiling.tile import Grid, power_of_two
from fusionscope.gpu.triton_support import TritonVersion
from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise

_MOST_ELEMENTS = 1_048_576  # of a Triton tensor
_REGISTER_SHARE = 0.4  # for one tile, of all registers of a block
_ELEMENTS_BY_WARPS = ((256, 1), (1024, 2), (4096, 4))
_MOST_WARPS = 8

_CONCATENATE_CYCLES, _CROSSED_CONCATENATE_CYCLES = 6, 400


@dataclass(frozen=True, slots=True)
class Tiling:
    """One tiling with its costs. ``tile_sizes`` are the elements of the root that one block
    computes. A block has ``warps`` with ``threads`` in all. Times are durations, the other figures
    flops and bytes of the kernel, which has ``blocks``.
    """

    tile_sizes: tuple[int, ...]
    warps: int
    blocks: int
    threads: int
    flops: int
    bytes_read: int
    bytes_written: int
    read: Duration
    write: Duration
    compute: Duration
    total: Duration


@dataclass(frozen=True, slots=True)
class _Content:
    """The work for one tile: flops per element, the operands read from memory, whether it stays in
    registers, the bytes of an element that is transposed in shared memory, and its concatenations.
    """

    flops: int
    read: tuple[_Array, ...]
    is_kept: bool
    transposed: int
    nested: tuple[Nested, ...]


class _Array:
    """An operand, or the root: its extents in elements, its dimensions from minor to major, and the
    bytes of an element and of all elements.
    """

    __slots__ = ("element_size", "extents", "order", "size")

    def __init__(self, instruction: MutableInstruction) -> None:
        self.extents = sizes(instruction.shape)
        self.order = minor_to_major(instruction.shape)
        self.element_size = -(-instruction.shape.bits // 8)
        self.size = instruction.shape.byte_size


class TiledKernel:
    """A fusion with one root, on a device."""

    def __init__(
        self, body: FusionBody, device: Device, propagation: Propagation, version: TritonVersion
    ) -> None:
        self._tiled = TiledBody(body, propagation)
        self._root = _Array(self._tiled.root)
        self._device = device
        self._architecture = architecture_of(device)
        self._version = version
        self._transaction_size = memory_figures(device).transaction_size
        self._most_registers = _REGISTER_SHARE * device.registers_per_block_limit
        self._contents: dict[tuple[Region, tuple[Numbers, ...]], _Content] = {}
        self._arrays: dict[MutableInstruction, _Array] = {}
        self._flops: dict[MutableInstruction, int] = {}

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the root, in elements."""
        return self._tiled.extents

    @property
    def problem(self) -> str:
        """The compiler's message if no tiling is possible, else empty."""
        return self._tiled.problem

    def has_tiles(self, tile_sizes: tuple[int, ...]) -> bool:
        """Return whether such tiles exist, whatever their size in registers."""
        return self._tiled.tiles(self._grid(tile_sizes)) is not None

    def _grid(self, tile_sizes: tuple[int, ...]) -> Grid:
        counts = [-(-extent // size) for extent, size in zip(self.extents, tile_sizes, strict=True)]
        return Grid(tile_sizes, counts)

    def tiling(
        self,
        tile_sizes: tuple[int, ...],
        *,
        warps: int | None = None,
        limit: Duration = INFINITE,
    ) -> Tiling | None:
        """Return the tiling with tiles of these sizes. The number of warps follows from the tiles
        unless it is given, and then the grid can have any size.

        Return None if such tiles do not exist or are too large, or if the kernel takes longer than
        ``limit``. Source: EstimateTiledRunTimeDataImpl, VerifyTritonConstraints.
        """
        if prod(map(power_of_two, tile_sizes)) > self._most_registers:
            return None
        grid = self._grid(tile_sizes)
        blocks = prod(grid.counts)
        if warps is None and blocks > self._device.block_dim_limit_x:
            return None
        utilization = self._utilization(self._root, tile_sizes, (1,) * len(tile_sizes))
        write = from_seconds(self._root.size / int(utilization * self._device.memory_bandwidth))
        if write > limit:
            return None
        tiles = self._tiled.tiles(grid)
        if tiles is None:
            return None
        work = self._work(self._tiled.region, blocks, tiles)
        if work is None:
            return None
        flops, largest, reads = work
        if warps is None:
            warps = _warps(largest)
        threads = warps * self._device.threads_per_warp
        compute = compute_time(self._device, flops, blocks, threads)
        if compute > limit:
            return None
        read: Duration = 0
        bytes_read = 0
        for array, (size, utilization) in reads.items():
            bytes_read += size
            read += read_time(self._device, blocks, min(array.size, size), size, utilization)
            if read + write > limit:
                return None
        return Tiling(
            tile_sizes,
            warps,
            blocks,
            threads,
            flops,
            bytes_read,
            self._root.size,
            read,
            write,
            compute,
            combine(compute, read + write),
        )

    def _work(
        self, region: Region, blocks: int, tiles: Sequence[int]
    ) -> tuple[int, int, dict[_Array, tuple[int, float]]] | None:
        """Return the flops of all blocks, the elements of the largest tile, and for each operand
        the bytes read and the least share of the bandwidth that they use. Return None if a tile is
        too large.
        """
        distinct = self._tiled.distinct
        flops, largest = 0, 1
        reads: dict[_Array, tuple[int, float]] = {}
        regions = [(region, blocks)]
        while regions:
            region, blocks = regions.pop()
            same: dict[tuple[int, ...], tuple[Numbers, ...]] = {}
            for numbers in region.instructions:
                places = tuple([tiles[number] for number in numbers])
                same[places] = (*same.get(places, ()), numbers)
            for places, written in same.items():
                content = self._content(region, written)
                tile = [distinct[place] for place in places]
                tile_sizes = [each.size for each in tile]
                elements = prod(map(power_of_two, tile_sizes))
                if (
                    elements > (self._most_registers if content.is_kept else _MOST_ELEMENTS)
                    or elements * content.transposed > self._device.shared_memory_per_block_optin
                ):
                    return None
                largest = max(largest, elements)
                flops += content.flops * blocks * elements
                for array in content.read:
                    size = array.element_size * blocks * prod(map(min, tile_sizes, array.extents))
                    utilization = self._utilization(
                        array, tile_sizes, [each.stride for each in tile]
                    )
                    known, least = reads.get(array, (0, 1.0))
                    reads[array] = known + size, min(least, utilization)
                for nested in content.nested:
                    regions.append((nested.region, blocks * nested.part // nested.whole))
        return flops, largest, reads

    def _utilization(
        self, array: _Array, tile_sizes: Sequence[int], strides: Sequence[int]
    ) -> float:
        """Return the share of moved bytes that is used, for the elements that are adjacent.

        Source: BandwidthUtilizationRateHeuristicForTiledMemoryAccess in
        xla/service/gpu/model/coalescing_analysis.cc.
        """
        size = array.element_size
        for place in array.order:
            tile_size, extent = tile_sizes[place], array.extents[place]
            if strides[place] != 1:
                break
            size *= min(tile_size, extent)
            if tile_size < extent:
                break
        moved = -(-size // self._transaction_size) * self._transaction_size
        return size / moved if moved else 1.0  # an array without elements moves nothing

    def _content(self, region: Region, tiles: tuple[Numbers, ...]) -> _Content:
        """Return the work for instructions with the same tiles."""
        key = region, tiles
        found = self._contents.get(key)
        if found is None:
            together: dict[MutableInstruction, tuple[Nested, ...]] = {}
            for tile in tiles:
                together = region.instructions[tile] | together
            inside = [each for each in together if each in self._tiled.body]
            read = tuple(self._array(each) for each in together if each not in self._tiled.body)
            found = self._contents[key] = _Content(
                sum(self._flops_of(each) for each in inside),
                read,
                bool(read) or any(each.opcode == "iota" for each in inside),
                self._transposed(inside),
                tuple(nested for each in inside for nested in together[each]),
            )
        return found

    def _transposed(self, instructions: Iterable[MutableInstruction]) -> int:
        if not self._version.limits_transposes:
            return 0
        transposes = (each for each in instructions if each.opcode == "transpose")
        return max((-(-each.shape.bits // 8) for each in transposes), default=0)

    def _array(self, operand: MutableInstruction) -> _Array:
        if operand not in self._arrays:
            self._arrays[operand] = _Array(operand)
        return self._arrays[operand]

    def _flops_of(self, instruction: MutableInstruction) -> int:
        """Return the flops for one element of the result. Source: FlopsPerElement."""
        if instruction not in self._flops:
            self._flops[instruction] = self._count_flops(instruction)
        return self._flops[instruction]

    def _count_flops(self, instruction: MutableInstruction) -> int:
        opcode = instruction.opcode
        if opcode == "constant" or (opcode == "copy" and not self._version.counts_copies):
            return 0
        if opcode == "concatenate":
            place = instruction.attribute("dimensions")[0]
            first = sizes(instruction.operands[0].shape)[place]
            crosses = place > 0 and first & 31
            return _CROSSED_CONCATENATE_CYCLES if crosses else _CONCATENATE_CYCLES
        if opcode == "reduce":
            extents = sizes(instruction.operands[0].shape)
            reduced: list[int] = [extents[place] for place in instruction.attribute("dimensions")]
            if self._version.counts_padding:
                reduced = [power_of_two(extent) for extent in reduced]
            reducer = instruction.called[0].instructions
            return (prod(reduced) - 1) * sum(self._flops_of(inner) for inner in reducer)
        if is_elementwise(instruction):
            return cycles_of(self._architecture, opcode, instruction.shape.element_type)
        return 0


def _warps(elements: int) -> int:
    """Return the warps for the elements of the largest tile. Source: GetNumWarps."""
    for most, warps in _ELEMENTS_BY_WARPS:
        if elements <= most:
            return warps
    return _MOST_WARPS
