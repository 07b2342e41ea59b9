"""What moves or reduces rows: gathers, scatters, reductions, padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.findings.opportunities.patterns.program import Match, Program
from fusionscope.history.handoffs import OUTSIDE
from fusionscope.hlo import Instruction

_INDEXED = frozenset({"gather", "scatter", "sort"})  # reading is slow for another reason
_FILLING = frozenset({"broadcast", "constant", "iota"})


def _fused_with(number: int, program: Program) -> list[int]:
    """Return a kernel and those that read its result, but for products."""
    readers = program.readers(number)
    return [number, *sorted(n for n in readers if n != OUTSIDE and not program.is_product(n))]


class ScatterGradient:
    """The gradient of a gather is a scatter: it fills an array, and adds to single places of it."""

    id = "scatter-gradient"
    title = "scatter as the gradient of a gather, {}"
    advice = "a sum over what each row gets, or a comparison with the index instead of the gather"

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.with_operation("scatter"):
            scatters = program.inside(number, "scatter")
            if any(map(_is_gradient, scatters)):
                fills = (n for n in program.makers(number) if n != OUTSIDE)
                filled = [n for n in fills if program.work(n) <= _FILLING]
                yield program.as_one([*_fused_with(number, program), *filled])


def _is_gradient(scatter: Instruction) -> bool:
    """Return whether a scatter is in a gradient, and not that of pooling."""
    name = scatter.op_name or ""
    return "transpose(" in name and "select_and_scatter" not in name


@dataclass(frozen=True)
class NarrowRows:
    """A gather reads rows of two or three numbers.

    widths: numbers in a row
    """

    id = "narrow-rows"
    title = "gathers of two or three numbers, {}"
    advice = "keep x, y and z in arrays of their own"

    widths: tuple[int, ...] = (2, 3)

    def matches(self, program: Program) -> Iterator[Match]:
        covered: set[int] = set()
        for number in program.with_operation("gather"):
            is_narrow = any(map(self._is_narrow, program.inside(number, "gather")))
            if is_narrow and number not in covered:
                match = program.as_one(_fused_with(number, program))
                covered.update(match.kernels)
                yield match

    def _is_narrow(self, gather: Instruction) -> bool:
        sizes: tuple[int, ...] = tuple(gather.attribute("slice_sizes") or ())
        rows = gather.shape.element_count
        return bool(sizes) and sizes[-1] in self.widths and rows > 1_000


@dataclass(frozen=True)
class StridedReduction:
    """A reduction over a dimension that is not the last in memory takes much longer than reading
    its operands once, as the gradients of biases do.

    factor: by which it takes longer at least
    """

    id = "strided-reduction"
    title = "reductions across rows, {}"
    advice = "sum parts of the rows first (fusionscope recipes sum-in-parts)"

    factor: float = 2.0

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.with_operation("reduce"):
            limits = program.bounds.limits[number]
            best = limits.launches + program.microseconds(program.bytes_of([number]))
            is_slow = limits.memory and limits.total >= self.factor * best
            is_sum = _INDEXED.isdisjoint(program.kernels[number].operations)
            if is_slow and is_sum and self._is_strided(number, program):
                yield Match((number,), limits.total, best, 0.0)

    @staticmethod
    def _is_strided(number: int, program: Program) -> bool:
        return any(map(_crosses_rows, program.inside(number, "reduce")))


def _crosses_rows(reduction: Instruction) -> bool:
    """Return whether a reduction leaves the last dimension in memory, and is not the compiler's own
    sum over the parts of a product.
    """
    if (reduction.op_name or "").endswith("dot_general"):
        return False
    shape = reduction.operands[0].shape
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    long = [dimension for dimension in order if shape.dimensions[dimension] != 1]
    return bool(long) and long[0] not in (reduction.attribute("dimensions") or ())


@dataclass(frozen=True)
class Padding:
    """A fifth or more of an array that is written is padding.

    share: of the elements
    least: bytes of the padding
    """

    id = "padding"
    title = "padding written, {}"
    advice = "sizes that need none, or the operation's own padding, such as that of a convolution"

    share: float = 0.2
    least: int = 65_536

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.with_operation("pad"):
            added = max(map(self._added, program.inside(number, "pad")), default=0)
            whole = program.kernels[number].bytes_written
            if added >= self.least and added >= self.share * whole:
                yield self._match(number, min(added, whole), program)

    def _added(self, pad: Instruction) -> int:
        before, after = pad.operands[0].shape.byte_size, pad.shape.byte_size
        return after - before if after - before >= self.share * after else 0

    @staticmethod
    def _match(number: int, added: int, program: Program) -> Match:
        readers = sorted(program.readers(number) - {OUTSIDE})
        if program.work(number) <= {"pad", "slice", "reshape", "transpose"}:
            return program.without(number)
        size = added * program.kernels[number].runs * (1 + bool(readers))
        return program.with_fewer_bytes([number, *readers], size)
