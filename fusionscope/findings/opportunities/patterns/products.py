"""What stands around matrix products, and need not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import fsum
from typing import NamedTuple

from fusionscope.findings.opportunities.patterns.program import Match, Program, Value
from fusionscope.history.handoffs import OUTSIDE
from fusionscope.hlo import Shape
from fusionscope.hlo.search import reachable

_MOVING = frozenset("copy reshape reverse slice transpose".split())
_ENLARGING = _MOVING | frozenset("add broadcast convert dynamic-slice multiply subtract".split())
_BATCH = '"lhs_batch_dimensions":["'


class Softmax(NamedTuple):
    """The result of a product that kernels compute a softmax of: the product, the others that
    make or read an array of its size, and the kernels between them.
    """

    result: Value
    product: int
    products: frozenset[int]
    between: frozenset[int]

    @property
    def kernels(self) -> list[int]:
        return [self.product, *sorted((self.products | self.between) - {self.product})]


def _softmax(number: int, value: Value, program: Program) -> Softmax | None:
    """Return the softmax of what a product writes."""
    count = program.shape(value).element_count

    def larger(kernel: int) -> Iterator[int]:
        for result in program.written[kernel]:
            if program.shape(result).element_count == count:
                readers = (reader for reader, _ in result.handed.readers)
                yield from (n for n in readers if n != OUTSIDE and not program.is_product(n))

    between = frozenset(reachable([number], larger)) - {number}
    operations = frozenset(op for kernel in between for op in program.kernels[kernel].operations)
    if not {"exponential", "reduce"} <= operations or not any(map(program.has_maximum, between)):
        return None
    products = {number}
    for kernel in {number} | between:
        for neighbour in _of_size(kernel, count, program):
            if neighbour != OUTSIDE and program.is_product(neighbour):
                products.add(neighbour)
    return Softmax(value, number, frozenset(products), between)


def _of_size(kernel: int, count: int, program: Program) -> Iterator[int]:
    """Yield what makes and reads the arrays of a size that a kernel reads and writes."""
    for value in program.read[kernel]:
        if program.shape(value).element_count == count:
            yield value.handed.maker
    for value in program.written[kernel]:
        if program.shape(value).element_count == count:
            yield from (reader for reader, _ in value.handed.readers)


def _is_batched(kernel: int, program: Program) -> bool:
    """Return whether a product has batch dimensions."""
    return any(
        inner.attribute("lhs_batch_dims") or _BATCH in inner.statement.attributes
        for inner in program.inside(kernel, "custom-call", "dot")
    )


def _large_results(program: Program, least: int) -> Iterator[tuple[int, Value]]:
    """Yield the products whose results have more elements than any of their operands."""
    for number in program.with_operation("custom-call", "dot"):
        for value in program.written[number]:
            shape = program.shape(value)
            if shape.byte_size < least or not program.is_product(number):
                continue
            operands = program.kernels[number].instruction.operands
            if all(operand.shape.element_count < shape.element_count for operand in operands):
                yield number, value


@dataclass(frozen=True)
class AttentionScores:
    """The scores of attention pass through memory between a product, their softmax, and another
    product, though they are larger than what these read and write beside them.

    least: bytes of the scores
    """

    id = "attention-scores"
    title = "attention scores in memory, {}"
    advice = "a fused attention, such as jax.nn.dot_product_attention with implementation='cudnn'"

    least: int = 1 << 20

    def matches(self, program: Program) -> Iterator[Match]:
        covered: set[int] = set()
        for number, value in _large_results(program, self.least):
            if number in covered or not _is_batched(number, program):
                continue
            softmax = _softmax(number, value, program)
            if softmax is not None and len(softmax.products) > 1:
                covered |= softmax.products
                yield program.as_one(softmax.kernels)


@dataclass(frozen=True)
class WideLogits:
    """The logits of a large vocabulary are written and read as f32.

    vocabulary: size of a dimension
    """

    id = "wide-logits"
    title = "logits in f32, {}"
    advice = "write them as bf16, or compute the loss in chunks of rows"

    vocabulary: int = 8_192

    def matches(self, program: Program) -> Iterator[Match]:
        for number, value in _large_results(program, 4 * self.vocabulary):
            shape = program.shape(value)
            is_wide = max(size or 0 for size in shape.dimensions) >= self.vocabulary
            if not is_wide or _is_batched(number, program):
                continue
            softmax = _softmax(number, value, program)
            if softmax is not None:
                size = self._bytes(softmax, program) / 2
                if size:
                    yield program.with_fewer_bytes(softmax.kernels, size)

    @staticmethod
    def _bytes(softmax: Softmax, program: Program) -> float:
        """Return the bytes of all arrays of the size in f32."""
        count = program.shape(softmax.result).element_count
        values = {
            value.handed
            for kernel in softmax.between | {softmax.product}
            for value in program.written[kernel]
            if program.shape(value).element_count == count
            and program.shape(value).element_type == "f32"
        }
        return fsum(
            handed.bytes_written + fsum(size for _, size in handed.readers) for handed in values
        )


class SplitProduct:
    """The compiler computes a product in parts, and adds them up in another kernel."""

    id = "split-product"
    title = "the sum over a split product's parts, {}"
    advice = "try XLA_FLAGS=--xla_gpu_experimental_force_split_k=1, which splits none"

    def matches(self, program: Program) -> Iterator[Match]:
        covered: set[int] = set()  # products that several kernels sum up
        for number in program.with_operation("reduce"):
            sums = program.inside(number, "reduce")
            if not any((inner.op_name or "").endswith("dot_general") for inner in sums):
                continue
            makers = program.makers(number) - covered - {OUTSIDE}
            products = [maker for maker in sorted(makers) if program.is_product(maker)]
            covered.update(products)
            if products:
                yield self._match(number, products, program)

    @staticmethod
    def _match(number: int, products: list[int], program: Program) -> Match:
        """Return that the sum need not be, nor its parts written."""
        least = program.as_one([number, *products])
        parts = (value for product in products for value in program.written[product])
        saved = program.microseconds(fsum(value.handed.bytes_written for value in parts))
        memory = fsum(program.bounds.limits[product].memory for product in products)
        best = program.time_of(products) - min(memory, saved)
        return replace(least, at_best_us=max(least.at_best_us, best))


@dataclass(frozen=True)
class Dequantized:
    """Values of 8 bits, such as quantized weights, or a scale for each, are written wider, and only
    a product reads them.

    factor: by which there are more bytes than are read for them
    """

    id = "dequantized"
    title = "values of 8 bits written wider for a product, {}"
    advice = "multiply the narrow values, converted next to the product, and scale its sums"

    factor: float = 2.0

    def matches(self, program: Program) -> Iterator[Match]:
        kernels = program.with_operation("broadcast", "convert")
        larger = {number for number in kernels if self._enlarges(number, program)}
        products = {reader for number in larger for reader in program.readers(number)}
        for product in sorted(products):
            together = [product, *sorted(larger & program.makers(product))]
            values = (value for kernel in together for value in program.read[kernel])
            if any(_is_quantized(program.shape(value)) for value in values):
                yield program.as_one(together)

    def _enlarges(self, number: int, program: Program) -> bool:
        readers = program.readers(number)
        size = fsum(value.bytes for value in program.written[number])
        return (
            program.work(number) <= _ENLARGING
            and size >= self.factor * fsum(value.bytes for value in program.read[number])
            and len(readers) == 1
            and OUTSIDE not in readers
            and all(map(program.is_product, readers))
        )


def _is_quantized(shape: Shape) -> bool:
    """Return whether the elements of an array have 8 bits or fewer."""
    return (shape.element_type or "").startswith(("f4", "f8", "s2", "s4", "s8", "u2", "u4", "u8"))


class TurnedOperand:
    """A kernel only puts an array into another order, which a product or a loop over slices wants
    and what makes the array does not.
    """

    id = "turned-operand"
    title = "transposed for a product, {}"
    advice = "make it in the order in which it is read, or name the dimensions in another order"

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.with_operation("copy", "transpose"):
            readers = program.readers(number)
            is_order = program.work(number) <= _MOVING
            if is_order and readers and all(self._wants(n, program) for n in readers):
                yield program.without(number)

    @staticmethod
    def _wants(number: int, program: Program) -> bool:
        if number == OUTSIDE:
            return False
        operations = program.kernels[number].operations
        return program.is_product(number) or "dynamic-slice" in operations
