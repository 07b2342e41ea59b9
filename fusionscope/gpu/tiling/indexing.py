"""Tiles derived from the index into each array, as in compilers before tile propagation.

The index of each dimension is a function of the index into the root. Its values on one tile of the
root must be a sequence with a constant step. Source: xla/codegen/tiling/symbolic_tile_analysis.cc,
symbolic_tile.cc, size_and_stride_expression.cc;
xla/codegen/xtile/codegen/tiled_emitter_constraints.cc; xla/hlo/analysis/indexing_analysis.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from math import prod
from typing import NamedTuple

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.tiling.expression import (
    ADD,
    CONSTANT,
    DIVIDE,
    MODULO,
    MULTIPLY,
    VARIABLE,
    ZERO,
    Expression,
    Range,
    Simplifier,
    add,
    delinearized,
    linearized,
    multiply,
    split_by_factor,
    substitute,
    subtract,
    terms,
    text,
    value_at_zero,
    variable,
    variables,
)
from fusionscope.gpu.tiling.propagation import (
    Numbers,
    Propagation,
    Register,
    inverted,
    read_slice,
)
from fusionscope.gpu.tiling.tile import DimensionTile, Grid, Source, power_of_two
from fusionscope.graph.layouts import (
    minor_to_major,
    permutation_of_bitcast,
    reshape_is_bitcast,
    sizes,
)
from fusionscope.graph.mutable import MutableInstruction


class Run(NamedTuple):
    """The values of an index on one tile, if they are equidistant: their count, and ``stride``."""

    size: int
    stride: int
    is_one: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class IndexSpace:
    """The variables of indices with their ranges: the ``rank`` dimensions of the root, then the
    reduced dimensions. ``limits`` constrain expressions of them. If the space ``is_empty``, there
    are no indices at all.
    """

    rank: int
    ranges: list[Range]
    limits: Mapping[Expression, Range] = field(default_factory=dict)
    is_empty: bool = False

    def reduced(
        self, extents: Sequence[int], indices: Iterable[Expression]
    ) -> tuple[IndexSpace, list[Expression]]:
        """Return the space with further reduced dimensions, inserted before the existing ones, and
        ``indices`` in it.
        """
        more = len(extents)

        def moved(number: int) -> Expression:
            return variable(number if number < self.rank else number + more)

        ranges = list(self.ranges)
        ranges[self.rank : self.rank] = [(0, extent - 1) for extent in extents]
        limits = {substitute(index, moved): ends for index, ends in self.limits.items()}
        space = IndexSpace(self.rank, ranges, limits, self.is_empty)
        return space, [substitute(index, moved) for index in indices]

    def limited(self, index: Expression, low: int, high: int) -> IndexSpace:
        """Return the space with an index constrained to a range.

        Source: IndexingMap::AddConstraint, SymbolicExprSimplifier::SimplifyConstraintExprs.
        """
        simplifier = Simplifier(self.ranges, replaces_points=True)
        index = simplifier.simplify(index)
        least, largest = simplifier.range(index)
        if low <= least and largest <= high:
            return self
        index, low, high = _solved(index, low, high, simplifier)
        ranges, limits = list(self.ranges), dict(self.limits)
        if index.kind == VARIABLE:
            least, largest = ranges[index.left]
            low, high = max(low, least), min(high, largest)
            ranges[index.left] = low, high
        else:  # the range of a part of a part is smaller
            limits[index] = low, high
        if low > high or index.kind == CONSTANT:
            return IndexSpace(self.rank, [(0, -1)] * len(ranges), is_empty=True)
        return IndexSpace(self.rank, ranges, limits)

    def hides_limits(self, indices: Sequence[Expression]) -> bool:
        """Return whether something is constrained other than these indices, which may end early. An
        index that does not begin at 0 does not count as one of them.

        Source: IndexingMapConstraintsCanBeIgnored.
        """
        return any(index not in indices for index in self.limits)

    def map(self, indices: Sequence[Expression], division: str) -> str:
        """Return indices and constraints as the compiler prints indexing maps."""
        indices_used = [*indices, *self.limits]
        reduced = sorted({number for index in indices_used for number in variables(index)})
        names = [f"d{number}" for number in range(self.rank)]
        numbered = dict(enumerate(names))
        for number in reduced:
            if number >= self.rank:
                numbered[number] = f"s{len(numbered) - self.rank}"
        symbols = [name for number, name in numbered.items() if number >= self.rank]
        results = ", ".join(text(index, numbered, division) for index in indices)
        limits = [
            *(f"{name} in {list(self.ranges[number])}" for number, name in numbered.items()),
            *sorted(
                f"{text(index, numbered, division)} in {list(range)}"
                for index, range in self.limits.items()
            ),
        ]
        listed = f"[{', '.join(symbols)}]" if symbols else ""
        domain = f", domain: {', '.join(limits)}" if limits else ""
        return f"({', '.join(names)}){listed} -> ({results}){domain}"

    def steps(self, index: Expression) -> Expression:
        """Return the index relative to its value at the tile's beginning."""
        first = substitute(index, lambda _: ZERO)
        return self.simplify(subtract(index, first))

    def simplify(self, index: Expression, *, replaces_points: bool = False) -> Expression:
        if self.is_empty:
            return ZERO
        simplifier = Simplifier(self.ranges, self.limits, replaces_points=replaces_points)
        return simplifier.simplify(index)

    def run(self, steps: Expression, tile_sizes: Sequence[int]) -> Run:
        """Return the run of an index that is a run for some tiles of the root."""
        stride_run = self.find_run(steps, tile_sizes)
        assert stride_run is not None
        return stride_run

    def has_run(self, steps: Expression) -> bool:
        """Return whether the index is a run for some tiles of the root."""
        return self.find_run(steps, [1] * self.rank) is not None

    def find_run(self, steps: Expression, tile_sizes: Sequence[int]) -> Run | None:
        """Return the run of an index, or None if it is not a run for any tiles of the root.

        Source: ExtractSizeAndStride.
        """
        kind = steps.kind
        if kind == CONSTANT:
            return Run(1, 0)
        if kind == VARIABLE:
            number: int = steps.left
            if number < self.rank:
                return Run(tile_sizes[number], 1)
            low, high = self.ranges[number]
            return Run(high + 1, 1) if low == 0 else None
        if kind == ADD:
            return self._sum(steps, tile_sizes)
        inner: Expression = steps.left
        factor: int = steps.right.left
        if kind == MULTIPLY:
            run = self.find_run(inner, tile_sizes)
            # As in the compiler, whether the unscaled values are a run is dropped here.
            return None if run is None else Run(run.size, run.stride * factor)
        if kind == DIVIDE and self._is_of_root(inner):
            return Run(-(-tile_sizes[inner.left] // factor), 1)
        if kind == MODULO:
            size = 0
            if self._is_of_root(inner):
                size = tile_sizes[inner.left]
            elif inner.kind == DIVIDE and self._is_of_root(inner.left):
                size = -(-tile_sizes[inner.left.left] // inner.right.left)
            if size:
                is_one = factor % size == 0 or size % factor == 0
                return Run(size - (size - 1) // factor * factor, 1, is_one)
        return None

    def _is_of_root(self, index: Expression) -> bool:
        return index.kind == VARIABLE and index.left < self.rank

    def _sum(self, steps: Expression, tile_sizes: Sequence[int]) -> Run | None:
        """Return the run of several dimensions, sorted by descending stride: first those of single
        elements, then at most one partial one, then whole ones, and single elements again.

        Source: CombineSizesAndStrides.
        """
        parts: list[tuple[Run, int]] = []
        for term in terms(steps):
            base = term.left if term.kind == MULTIPLY else term
            if base.kind != VARIABLE or self.ranges[base.left][0] != 0:
                return None
            parts.append((self.run(term, tile_sizes), self.ranges[base.left][1] + 1))
        parts.sort(key=lambda part: -abs(part[0].stride))
        for (before, _), (run, extent) in pairwise(parts):
            if extent * abs(run.stride) != abs(before.stride):
                return None
        while parts and parts[-1][0].size == 1:
            parts.pop()
        while parts and parts[0][0].size == 1:
            parts.pop(0)
        return Run(
            prod(run.size for run, _ in parts),
            parts[-1][0].stride if parts else 0,
            all(run.size == extent for run, extent in parts[1:]),
        )


def _solved(
    index: Expression, low: int, high: int, simplifier: Simplifier
) -> tuple[Expression, int, int]:
    """Return the expression that is constrained, and its range, if an index, which is a run, is in
    a range, as far as that can be solved. The offset of a multiple there is at least 0.

    Source: SymbolicExprSimplifier::SimplifyConstraintRange.
    """
    while index.kind in (ADD, MULTIPLY, DIVIDE):
        if index.right.kind != CONSTANT:
            multiplied, factor, remaining = split_by_factor(index)
            _, largest = simplifier.range(remaining)
            if low or high // factor != (high - largest) // factor:
                break
            index, high = multiplied, high // factor
            continue
        number: int = index.right.left
        if index.kind == ADD:
            low, high = low - number, high - number
        elif index.kind == MULTIPLY:
            low, high = -(-low // number), high // number
        else:
            low, high = low * number, (high + 1) * number - 1
        index = index.left
    return index, low, high


@dataclass(frozen=True, slots=True)
class Indexed(Source):
    """A dimension whose index is a function of the index into the root."""

    index: Expression
    steps: Expression
    space: IndexSpace
    inputs: tuple[int, ...] = ()

    @property
    def dimensions(self) -> frozenset[int]:
        return frozenset(number for number in variables(self.index) if number < self.space.rank)

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        if self.space.is_empty:
            return DimensionTile(ZERO, 0, 0, ZERO)
        run = self.space.run(self.steps, grid.sizes)
        if not run.is_one:
            return None

        def first(number: int) -> Expression:
            """Return the first index of a tile."""
            if number >= self.space.rank:
                return ZERO
            return multiply(variable(number), grid.sizes[number])

        simplify = Simplifier(grid.ranges, replaces_points=True).simplify
        offset = simplify(substitute(self.index, first))
        return DimensionTile(offset, run.size, run.stride, ZERO)


@dataclass(frozen=True, slots=True)
class Reinterpreted(Source):
    """The requirement that tiles of the result of a reshape, with their size in registers, are
    tiles of its operand too. ``steps`` are those of the operand on the result.
    """

    inputs: tuple[int, ...]
    steps: tuple[Expression, ...]
    space: IndexSpace

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        tile_sizes = [power_of_two(source.size) for source in inputs]
        runs = [self.space.run(step, tile_sizes) for step in self.steps]
        return inputs[0] if all(run.is_one for run in runs) else None


@dataclass(frozen=True, slots=True)
class Aligned(Source):
    """The requirement that tiles of a concatenation begin where its operands do."""

    inputs: tuple[int, ...]
    extents: tuple[int, ...]

    def tile(self, inputs: Sequence[DimensionTile], grid: Grid) -> DimensionTile | None:
        result = inputs[0]
        size = power_of_two(result.size)
        begins = value_at_zero(result.offset) == 0
        is_aligned = all(extent % size == 0 for extent in self.extents[:-1])
        return result if begins and is_aligned and result.stride == 1 else None


class IndexPropagation(Propagation):
    """Finds tiles from the index into each array. They have all elements of a dimension, or a power
    of two of them. A tiling that ``is_given`` is not checked for emission. Messages write quotients
    with ``division``.
    """

    def __init__(
        self,
        body: FusionBody,
        *,
        division: str = "/",
        is_given: bool = False,
        checks_last: bool = False,
    ) -> None:
        self.checks_last = checks_last
        self._is_given = is_given
        self._division = division
        self._replaces_points = not any(
            _keeps_points(instruction) for instruction in body.instructions()
        )
        self._indexed: dict[int, Indexed] = {}
        self._space = IndexSpace(0, [])
        self._parts: list[tuple[IndexSpace, list[Expression]]] = []

    def tile_sizes(self, extent: int) -> list[int]:
        return [extent, *(1 << power for power in reversed(range((extent - 1).bit_length())))]

    def given(self, tile_sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(tile_sizes)

    def root(self, extents: Sequence[int], register: Register) -> Numbers:
        self._space = IndexSpace(len(extents), [(0, extent - 1) for extent in extents])
        return tuple(
            self._register(variable(number), self._space, register)
            for number in range(len(extents))
        )

    @property
    def can_fail(self) -> bool:
        return bool(self._parts)

    def error(self, tile_sizes: Sequence[int]) -> str:
        """Source: ComputeOutputTilingInfo."""
        for space, indices in self._parts:
            for (low, _), size in zip(space.ranges, tile_sizes, strict=False):
                if low % size:
                    mapped = space.map(indices, self._division)
                    return f"Dimension bounds are not divisible by tile size: {mapped}"
        return ""

    def problem(self, instruction: MutableInstruction, tile: Numbers, *, is_inside: bool) -> str:
        """Source: SetSymbolicTile."""
        if is_inside and instruction.opcode == "pad":
            return f"Bailing out on {_text(instruction)}"
        if is_inside and instruction.opcode in ("bitcast", "reshape"):
            own_space, indices = _reinterpreted(instruction)
            if not all(own_space.has_run(own_space.steps(index)) for index in indices):
                return (
                    f"Bailing out on reshape {_text(instruction)} with indexing map "
                    f"{own_space.map(indices, self._division)}"
                )
        indexed = [self._indexed[number] for number in tile]
        space = indexed[0].space if indexed else self._space
        indices = [index_of_operand.index for index_of_operand in indexed]
        if all(
            space.has_run(index_of_operand.steps) for index_of_operand in indexed
        ) and not space.hides_limits(indices):
            return ""
        mapped = space.map(indices, self._division)
        return f"Failed to compute symbolic tile for {mapped} for HLO {_text(instruction)}"

    def operands(
        self,
        instruction: MutableInstruction,
        tile: Numbers,
        register: Register,
        *,
        is_outermost: bool,
    ) -> list[Numbers] | str:
        opcode, operands = instruction.opcode, instruction.operands
        space = self._indexed[tile[0]].space if tile else self._space
        result = [self._indexed[number].index for number in tile]

        def registered(indices: Iterable[Expression]) -> Numbers:
            return tuple(
                self._register(self._simple(index, space), space, register) for index in indices
            )

        if opcode == "broadcast":
            return [registered(result[place] for place in instruction.attribute("dimensions"))]
        if opcode == "transpose":
            return [registered(inverted(result, instruction.attribute("dimensions")))]
        if opcode == "reduce":
            extents = sizes(operands[0].shape)
            reduced = instruction.attribute("dimensions")
            space, result = space.reduced([extents[place] for place in reduced], result)
            result_indices, added = iter(result), count(space.rank)
            inputs = len(operands) // 2
            indices = [
                variable(next(added)) if dimension in reduced else next(result_indices)
                for dimension in range(len(extents))
            ]
            return [registered(indices)] * inputs + [()] * inputs
        if opcode == "slice":
            limits = read_slice(instruction)
            return [
                registered(
                    add(multiply(index, stride), start)
                    for index, (start, stride) in zip(result, limits, strict=True)
                )
            ]
        if opcode == "concatenate":
            return self._of_concatenate(instruction, tile, register, is_outermost=is_outermost)
        if opcode in ("bitcast", "reshape"):
            own_space, own_indices = _reinterpreted(instruction)
            steps = tuple(own_space.steps(index) for index in own_indices)
            if is_outermost and tile and not self._is_given:
                register(Reinterpreted(tile, steps, own_space))
            return [registered(substitute(index, result.__getitem__) for index in own_indices)]
        if opcode == "pad":  # which is a problem itself
            return [registered(result), ()]
        return [registered(result)] * len(operands)

    def _of_concatenate(
        self,
        instruction: MutableInstruction,
        tile: Numbers,
        register: Register,
        *,
        is_outermost: bool,
    ) -> list[Numbers] | str:
        place: int = instruction.attribute("dimensions")[0]
        extents = tuple(sizes(operand.shape)[place] for operand in instruction.operands)
        if is_outermost and not self._is_given:
            register(Aligned((tile[place],), extents))
        space = self._indexed[tile[place]].space
        result = [self._indexed[number].index for number in tile]
        operands, start = [], 0
        for extent in extents:
            part = space.limited(result[place], start, start + extent - 1)
            indices = [*result[:place], add(result[place], -start), *result[place + 1 :]]
            indices = [self._simple(index, part) for index in indices]
            self._parts.append((part, indices))
            operands.append(tuple(self._register(index, part, register) for index in indices))
            start += extent
        return operands

    def _simple(self, index: Expression, space: IndexSpace) -> Expression:
        return space.simplify(index, replaces_points=self._replaces_points)

    def _register(self, index: Expression, space: IndexSpace, register: Register) -> int:
        source = Indexed(index, space.steps(index), space)
        number = register(source)
        self._indexed[number] = source
        return number


def _keeps_points(instruction: MutableInstruction) -> bool:
    """Return whether an index with a single value is kept instead of being replaced by that value.

    Source: ShouldDerivationSimplifyPointDimensions.
    """
    if instruction.opcode == "concatenate":
        place: int = instruction.attribute("dimensions")[0]
        return any(sizes(operand.shape)[place] == 1 for operand in instruction.operands)
    return instruction.opcode == "pad"


def _reinterpreted(instruction: MutableInstruction) -> tuple[IndexSpace, list[Expression]]:
    """Return the index into the operand of a bitcast or reshape, as a function of the index into
    its result.

    Source: GetBitcastMap, ComputeOutputToInputReshapeOpIndexing.
    """
    shape, target = instruction.shape, instruction.operands[0].shape
    space = IndexSpace(shape.rank, [(0, extent - 1) for extent in sizes(shape)])
    result = [variable(number) for number in range(shape.rank)]
    permutation = permutation_of_bitcast(shape, target)
    indices: Sequence[Expression]
    if instruction.opcode == "bitcast" and (
        permutation is not None or not reshape_is_bitcast(shape, target)
    ):
        order = tuple(reversed(minor_to_major(shape)))
        target_order = tuple(reversed(minor_to_major(target)))
        reshaped = _reshaped(
            [result[place] for place in order],
            [sizes(shape)[place] for place in order],
            [sizes(target)[place] for place in target_order],
        )
        indices = inverted(reshaped, target_order)
    else:
        indices = _reshaped(result, sizes(shape), sizes(target))
    return space, [space.simplify(index) for index in indices]


def _reshaped(
    indices: Sequence[Expression], extents: Sequence[int], target: Sequence[int]
) -> list[Expression]:
    """Return the index into a shape with the same elements. Source: ComputeReshapeIndexingMap."""
    indices_of_target: list[Expression] = []
    start = end = 0
    while len(indices_of_target) < len(target):
        # The fewest dimensions of both with equally many elements.
        target_end, size, target_size = len(indices_of_target), 1, 1
        start = end
        while True:
            if target_end == len(indices_of_target) or target_size < size:
                target_size *= target[target_end]
                target_end += 1
            elif end < len(extents) and (end == start or size < target_size):
                size *= extents[end]
                end += 1
            else:
                break
        parts = target[len(indices_of_target) : target_end]
        indices_of_target += delinearized(parts, linearized(extents[start:end], indices[start:end]))
    return indices_of_target


def _text(instruction: MutableInstruction) -> str:
    """Return an instruction as the compiler prints it."""
    operands = ", ".join(f"%{operand.name}" for operand in instruction.operands)
    attributes = instruction.attributes_text
    if instruction.opcode == "fusion" and "kind=" not in attributes:
        kind = f", kind={instruction.fusion_kind}, calls=%{instruction.fused.name}"
        attributes = kind + attributes
    return (
        f"%{instruction.name} = {instruction.shape} {instruction.opcode}"
        f"({instruction.inside or operands}){attributes}"
    )
