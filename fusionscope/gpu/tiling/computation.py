"""Tiles for all instructions of a fusion, for any tiling of its root.

Source: xla/codegen/tiling/experimental/tiled_hlo.cc, tiling_space.cc.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.tiling.propagation import Numbers, Propagation
from fusionscope.gpu.tiling.tile import DimensionTile, Grid, Source
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction

_NO_TILE = -1


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


@dataclass(slots=True, eq=False)
class _KnownSource:
    """A source, the dimensions of the root that it depends on, and its known tiles: the index for
    each combination of their tile sizes.
    """

    source: Source
    dimensions: frozenset[int]
    known: dict[tuple[int, ...], int] = field(default_factory=dict)


class TiledBody:
    """The tiles of all instructions of a body with one root, and of its parameters.

    A tile is a list of source indices, one for each dimension. Sources are evaluated for each
    tiling, once for each combination of sizes that they depend on. If no sizes give tiles,
    ``problem`` is the compiler's message.
    """

    def __init__(self, body: FusionBody, propagation: Propagation) -> None:
        self.body = body
        self.root = body.roots[0]
        self.extents = sizes(self.root.shape)
        self.distinct: list[DimensionTile] = []
        self._propagation = propagation
        self._places: dict[DimensionTile, int] = {}
        self._sources: list[_KnownSource] = []
        self._numbers: dict[Source, int] = {}
        self.root_tile = propagation.root(self.extents, self._register)
        self.region = Region()
        self.problem = self._fill(self.region, self.root, self.root_tile)

    def tiles(self, grid: Grid) -> list[int] | None:
        """Return for each source the index of its tile in ``distinct``, or None if a source has no
        tile.
        """
        found: list[int] = []
        for each in self._sources:
            key = tuple([grid.sizes[dimension] for dimension in each.dimensions])
            place = each.known.get(key)
            if place is None:
                inputs = [self.distinct[found[number]] for number in each.source.inputs]
                place = each.known[key] = self._place(each.source.tile(inputs, grid))
            if place == _NO_TILE:
                return None
            found.append(place)
        return found

    def _place(self, tile: DimensionTile | None) -> int:
        if tile is None:
            return _NO_TILE
        place = self._places.setdefault(tile, len(self.distinct))
        if place == len(self.distinct):
            self.distinct.append(tile)
        return place

    def _register(self, source: Source) -> int:
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = len(self._sources)
            dimensions = source.dimensions.union(
                *(self._sources[each].dimensions for each in source.inputs)
            )
            self._sources.append(_KnownSource(source, dimensions))
        return number

    def _fill(self, region: Region, root: MutableInstruction, root_tile: Numbers) -> str:
        """Find the tiles of all instructions, or return the problem.

        Source: TiledHloComputation::CreateHloRegion; SymbolicTileAnalysis::AnalyzeFromInstruction.
        """
        pending = [(root, root_tile)]
        while pending:
            instruction, tile = pending.pop()
            known = region.instructions.setdefault(tile, {})
            if instruction in known:
                continue
            known[instruction] = ()
            is_inside = instruction in self.body
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
            operands = zip(self.body.operands(instruction), tiles, strict=True)
            if instruction.opcode != "concatenate":
                pending += operands
                continue
            nested = _nested(instruction)
            known[instruction] = nested
            for inner, operand in zip(nested, operands, strict=True):
                problem = self._fill(inner.region, *operand)
                if problem:
                    return problem
        return ""


def _nested(concatenate: MutableInstruction) -> tuple[Nested, ...]:
    """Source: GetNumBlocksForRegion in xla/service/gpu/model/gpu_indexing_performance_model.cc."""
    place: int = concatenate.attribute("dimensions")[0]
    whole = sizes(concatenate.shape)[place]
    return tuple(
        Nested(sizes(operand.shape)[place], whole, Region()) for operand in concatenate.operands
    )
