"""Tiles for all instructions of a fusion, for any tiling of its root.

Source: xla/codegen/tiling/experimental/tiled_hlo.cc, tiling_space.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.tiling.propagation import Numbers, Propagation, Register
from fusionscope.gpu.tiling.tile import Source
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.search import post_order


@dataclass(frozen=True, slots=True)
class Nested:
    """The computation of one operand of a concatenation, in ``part`` of ``whole`` blocks."""

    part: int
    whole: int
    region: Region


@dataclass(slots=True, eq=False)
class Region:
    """Instructions that are computed for each block: for each tile its instructions, and for each
    concatenation the computation of its operands.
    """

    instructions: dict[Numbers, dict[MutableInstruction, tuple[Nested, ...]]] = field(
        default_factory=dict
    )


_Tiled: TypeAlias = tuple[MutableInstruction, Numbers]


class TiledBody:
    """The tiles of all instructions of a body with one root, and of its parameters.

    A tile is a list of source numbers, one for each dimension, which ``register`` gives.
    ``sources`` are those of all tiles. If no sizes give tiles, ``problem`` is the compiler's
    message.
    """

    def __init__(self, body: FusionBody, propagation: Propagation, register: Register) -> None:
        self.body = body
        self.root = body.roots[0]
        self.sources: set[int] = set()
        self._propagation = propagation
        self._number = register
        self.region = Region()
        tile = propagation.root(sizes(self.root.shape), self._register)
        self._operands: dict[_Tiled, list[_Tiled]] = {}
        self.problem = self._fill(self.region, self.root, tile)
        if propagation.checks_last:
            self.problem = self._first_problem((self.root, tile)) or self.problem

    def _register(self, source: Source) -> int:
        number = self._number(source)
        self.sources.add(number)
        return number

    def _fill(self, region: Region, root: MutableInstruction, root_tile: Numbers) -> str:
        """Find the tiles of all instructions, or return the problem.

        Source: TiledHloComputation::CreateHloRegion; SymbolicTileAnalysis::AnalyzeFromInstruction.
        """
        pending = [(root, root_tile)]
        while pending:
            instruction, tile = pending.pop()
            filled = region.instructions.setdefault(tile, {})
            if instruction in filled:
                continue
            filled[instruction] = ()
            is_inside = instruction in self.body
            if not self._propagation.checks_last:
                problem = self._propagation.problem(instruction, tile, is_inside=is_inside)
                if problem:
                    return problem
            if not is_inside or not instruction.operands:
                continue
            tiles = self._propagation.operands(
                instruction, tile, self._register, is_outermost=region is self.region
            )
            if isinstance(tiles, str):
                return tiles
            operands = list(zip(self.body.operands(instruction), tiles, strict=True))
            self._operands[instruction, tile] = operands
            if instruction.opcode != "concatenate":
                pending += operands
                continue
            nested = _nested(instruction)
            filled[instruction] = nested
            for inner, operand in zip(nested, operands, strict=True):
                problem = self._fill(inner.region, *operand)
                if problem:
                    return problem
        return ""

    def _first_problem(self, root: _Tiled) -> str:
        """Return the first problem of a tile, those of operands first.

        Source: SortTiledHloInstructionsInPostOrder, SetSymbolicTilesAndComputeConstraints.
        """
        tiled = post_order([root], lambda member: self._operands.get(member, ()))
        problems = (
            self._propagation.problem(instruction, tile, is_inside=instruction in self.body)
            for instruction, tile in tiled
        )
        return next(filter(None, problems), "")


def _nested(concatenate: MutableInstruction) -> tuple[Nested, ...]:
    """Source: GetNumBlocksForRegion in xla/service/gpu/model/gpu_indexing_performance_model.cc."""
    place: int = concatenate.attribute("dimensions")[0]
    whole = sizes(concatenate.shape)[place]
    return tuple(
        Nested(sizes(operand.shape)[place], whole, Region()) for operand in concatenate.operands
    )


class Sources:
    """The sources of tiles, each with a number."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._numbers: dict[Source, int] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources)

    def __getitem__(self, number: int) -> Source:
        return self._sources[number]

    def register(self, source: Source) -> int:
        """Return the number of a source."""
        number = self._numbers.setdefault(source, len(self._sources))
        if number == len(self._sources):
            self._sources.append(source)
        return number
