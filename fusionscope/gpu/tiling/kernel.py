"""Estimates the run time of a fusion with each tiling.

Source: xla/service/gpu/model/gpu_indexing_performance_model.cc, triton_emitter_constraints.cc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.cycles import cycles_of
from fusionscope.gpu.cost.duration import INFINITE, Duration
from fusionscope.gpu.cost.memory import combine
from fusionscope.gpu.tiling.computation import Region, TiledBody
from fusionscope.gpu.tiling.propagation import Numbers, Propagation
from fusionscope.gpu.tiling.table import (
    Array,
    Part,
    Path,
    Read,
    TilingTable,
    Use,
    Write,
    set_of,
)
from fusionscope.gpu.tiling.tile import power_of_two
from fusionscope.gpu.triton_support import TritonVersion
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise

_MOST_ELEMENTS = 1_048_576  # of a Triton tensor
_ELEMENTS_BY_WARPS = ((256, 1), (1024, 2), (4096, 4))
_MOST_WARPS = 8

_CONCATENATE_CYCLES, _CROSSED_CONCATENATE_CYCLES = 6, 400


@dataclass(frozen=True, slots=True)
class Tiling:
    """One tiling with its costs. ``tile_sizes`` are the elements of the root that one block
    computes, ``output_tiles`` those of further results. A block has ``warps`` with ``threads`` in
    all. Times are durations, the other figures flops and bytes of the kernel, which has ``blocks``.
    """

    tile_sizes: tuple[int, ...]
    output_tiles: tuple[tuple[int, ...], ...]
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


def endless(tile_sizes: Sequence[int]) -> Tiling:
    """Return a tiling that takes infinitely long. Source: EstimateRunTimeData::Infinite."""
    end = INFINITE
    return Tiling(tuple(tile_sizes), (), _MOST_WARPS, 0, 0, 0, 0, 0, end, end, end, end)


class TiledKernel:
    """A fusion in each tiling of ``table``. Its first root computes all others on the way."""

    def __init__(
        self,
        body: FusionBody,
        table: TilingTable,
        propagation: Propagation,
        version: TritonVersion,
    ) -> None:
        self._table = table
        self._version = version
        self._tiled = TiledBody(body, propagation, table.register)
        self._root = Array.of(self._tiled.root.shape)
        self._flops: dict[MutableInstruction, int] = {}
        # The tilings that are possible, and their columns: the elements of each tile, the elements
        # computed for each number of flops, the time to write and, with their number, the reads.
        self._possible = 0
        self._elements: list[list[int]] = []
        self._work: list[tuple[int, list[int]]] = []
        self._writes: list[Duration] = []
        self._further: list[tuple[Array, list[Write | None]]] = []
        self._reads: list[tuple[int, list[Read]]] = []
        if not self._tiled.problem:
            self._possible = table.with_tiles(self._tiled.sources)
            self._read_regions()

    @property
    def problem(self) -> str:
        """The compiler's message if no tiling is possible, else empty."""
        return self._tiled.problem

    @property
    def sources(self) -> set[int]:
        """The sources of all tiles."""
        return self._tiled.sources

    def _read_regions(self) -> None:
        body, table = self._tiled.body, self._table
        tiles: dict[Numbers, None] = {}
        work: Counter[Use] = Counter()
        operands: dict[MutableInstruction, tuple[Use, ...]] = {}
        regions: list[tuple[Path, Region]] = [((), self._tiled.region)]
        while regions:
            path, region = regions.pop()
            uses: dict[MutableInstruction, tuple[Numbers, ...]] = {}
            for tile, instructions in region.instructions.items():
                tiles[tile] = None
                self._possible &= self._fitting(tile, instructions)
                for instruction, nested in instructions.items():
                    earlier = uses.get(instruction, ())
                    uses[instruction] = (*earlier, tile)
                    for piece in nested:
                        part = Part(piece.part, piece.whole, tile, earlier)
                        regions.append(((*path, part), piece.region))
            for instruction, its_tiles in uses.items():
                use = Use(path, its_tiles)
                if instruction in body:
                    work[use] += self._flops_of(instruction)
                else:
                    operands[instruction] = (*operands.get(instruction, ()), use)
            if not path:
                self._further = [
                    (array, table.further_writes(uses.get(root, ()), array))
                    for root in self._tiled.body.roots[1:]
                    for array in (Array.of(root.shape),)
                ]
        reads = Counter((uses, Array.of(piece.shape)) for piece, uses in operands.items())
        self._elements = [table.elements(tile) for tile in tiles]
        self._work = [(flops, table.work(use)) for use, flops in work.items() if flops]
        self._writes = table.writes(self._root)
        for _, writes in self._further:
            self._possible &= set_of(write is not None for write in writes)
            self._writes = [
                time + (write.time if write is not None else 0)
                for time, write in zip(self._writes, writes, strict=True)
            ]
        self._reads = [(count, table.reads(*read)) for read, count in reads.items()]

    def _fitting(self, tile: Numbers, instructions: Collection[MutableInstruction]) -> int:
        """Return the set of tilings in which instructions with this tile are not too large.

        What is read from memory stays in registers; what is transposed goes through shared memory.
        Source: VerifyTritonConstraints.
        """
        body, table = self._tiled.body, self._table
        inside = [instruction for instruction in instructions if instruction in body]
        is_kept = len(inside) < len(instructions) or any(inner.opcode == "iota" for inner in inside)
        fitting = table.within(tile, table.most_registers if is_kept else _MOST_ELEMENTS)
        if self._version.limits_transposes:
            for inner in inside:
                if inner.opcode == "transpose" and inner.shape.bits:
                    memory = table.device.shared_memory_per_block_optin
                    fitting &= table.within(tile, memory // -(-inner.shape.bits // 8))
        return fitting

    def tiling(self, index: int, warps: int | None = None) -> Tiling | None:
        """Return the tiling ``index`` of the table, or None if its tiles do not exist or are too
        large. The number of warps follows from the tiles unless it is given. Source:
        EstimateTiledRunTimeDataImpl.
        """
        if not self._possible >> index & 1:
            return None
        table = self._table
        grid = table.grids[index]
        warps = self._warps(index) if warps is None else warps
        flops = self._flops_in(index)
        compute = self._compute_time(flops, index, warps)
        reads = [(count, column[index]) for count, column in self._reads]
        read: Duration = sum(count * access.time for count, access in reads)
        write = self._writes[index]
        further = [writes[index] for _, writes in self._further]
        return Tiling(
            tuple(grid.sizes),
            tuple(result.tile_sizes for result in further if result is not None),
            warps,
            table.blocks[index],
            warps * table.device.threads_per_warp,
            flops,
            sum(count * access.size for count, access in reads),
            self._root.size + sum(array.size for array, _ in self._further),
            read,
            write,
            compute,
            combine(compute, read + write),
        )

    def best(self) -> Tiling | None:
        """Return the fastest tiling; of several equally fast ones, the last."""
        columns: list[list[Duration]] = [self._writes]
        for count, reads in self._reads:
            columns += [[read.time for read in reads]] * count
        memory: list[Duration] = list(map(sum, zip(*columns, strict=True)))
        best: tuple[Duration, int] | None = None
        # No tiling takes less time than its memory accesses.
        for index in sorted(_members(self._possible), key=memory.__getitem__):
            if best is not None and memory[index] > best[0]:
                break
            compute = self._compute_time(self._flops_in(index), index, self._warps(index))
            candidate = combine(compute, memory[index]), -index
            if best is None or candidate < best:
                best = candidate
        return None if best is None else self.tiling(-best[1])

    def _compute_time(self, flops: int, index: int, warps: int) -> Duration:
        return self._table.compute_time(flops, index, warps, self._version.compute_time)

    def _flops_in(self, index: int) -> int:
        """Return the flops of all blocks in a tiling."""
        return sum([flops * column[index] for flops, column in self._work])

    def _warps(self, index: int) -> int:
        """Return the warps for the elements of the largest tile. Source: GetNumWarps."""
        largest = max([column[index] for column in self._elements])
        for most, warps in _ELEMENTS_BY_WARPS:
            if largest <= most:
                return warps
        return _MOST_WARPS

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
            return cycles_of(self._table.architecture, opcode, instruction.shape.element_type)
        return 0


def _members(bits: int) -> list[int]:
    """Return the tilings in a set."""
    return [index for index, digit in enumerate(reversed(bin(bits)[2:])) if digit == "1"]
