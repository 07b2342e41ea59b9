"""Kernels side by side, calls of the host, and wide types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import fsum

from fusionscope.facts.result import Limit
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.opportunities.patterns.program import Match, Program
from fusionscope.history.kernels import KernelKind
from fusionscope.history.meaning import normal_attributes

_HOST = frozenset({"infeed", "outfeed", "recv", "send"})
_HOST_SPACE = 5


def _independent(kernels: list[int], program: Program) -> list[int]:
    """Return the first of these kernels, and those that depend on none of the rest."""
    together: list[int] = []
    for number in kernels:
        if program.earlier[number].isdisjoint(together):
            together.append(number)
    return together


def _in_one_launch(kernels: list[int], program: Program) -> Match:
    """Return that these kernels could be launched at once."""
    saved = fsum(program.bounds.limits[kernel].launches for kernel in kernels[1:])
    time_us = program.time_of(kernels)
    return Match(tuple(kernels), time_us, time_us - saved, 0.0)


@dataclass(frozen=True)
class AlikeKernels:
    """Small kernels that do the same with several arrays, such as an optimizer with those of a
    model, and do not wait for each other.

    least: kernels
    """

    id = "alike-kernels"
    title = "one small kernel for each array, {}"
    advice = "join the arrays, as optax.flatten does with parameters, or stack them"

    least: int = 8

    def matches(self, program: Program) -> Iterator[Match]:
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for number in program.running:
            kernel = program.kernels[number]
            if program.bounds.limits[number].limited_by is Limit.LAUNCHES:
                line = user_line(kernel.instruction.stack)
                alike[kernel.path, line, frozenset(kernel.operations)].append(number)
        for kernels in alike.values():
            if len(kernels) >= self.least:
                together = _independent(kernels, program)
                if len(together) >= self.least:
                    yield _in_one_launch(together, program)


class EqualCalls:
    """Calls of a library that do the same with arrays of one shape, and do not wait for each
    other: transforms and solvers, not products, whose operands would have to be joined.
    """

    id = "equal-calls"
    title = "equal calls side by side, {}"
    advice = "one call with a batch dimension, by jnp.stack or vmap"

    def matches(self, program: Program) -> Iterator[Match]:
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for number in program.running:
            is_call = program.kernels[number].kind is KernelKind.LIBRARY
            if is_call and not program.is_product(number):
                alike[self._form(number, program)].append(number)
        for kernels in alike.values():
            together = _independent(kernels, program) if len(kernels) > 1 else []
            if len(together) > 1:
                yield _in_one_launch(together, program)

    @staticmethod
    def _form(number: int, program: Program) -> Hashable:
        kernel = program.kernels[number]
        call = kernel.instruction
        shapes = [str(value.shape) for value in (call, *call.operands)]
        attributes = normal_attributes(call.statement.attributes)
        return kernel.path, call.opcode, tuple(shapes), tuple(sorted(attributes.items()))


class HostCalls:
    """A step waits for the host, for a callback or a transfer. How long is not in the time."""

    id = "host-calls"
    title = "calls of the host, {}"
    advice = "leave them out of the step"

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.with_operation("custom-call", "copy-start", *_HOST):
            if self._is_host(number, program):
                yield program.without(number)

    @staticmethod
    def _is_host(number: int, program: Program) -> bool:
        instruction = program.kernels[number].instruction
        if instruction.opcode == "custom-call":
            return "callback" in program.target(number)
        if instruction.opcode == "copy-start":
            shapes = (instruction.shape.elements[0], instruction.operands[0].shape)
            layouts = [shape.layout for shape in shapes]
            return any(layout and layout.memory_space == _HOST_SPACE for layout in layouts)
        return instruction.opcode in _HOST


_WIDE = frozenset({"c128", "f64", "s64", "u64"})


class DoublePrecision:
    """Arrays of 64 bits in a program whose arguments have fewer."""

    id = "double-precision"
    title = "64 bits, {}"
    advice = "arrays of 32 bits: no argument has 64"

    def matches(self, program: Program) -> Iterator[Match]:
        arguments = {p.shape.element_type for p in program.module.entry.parameters if p.shape.rank}
        wide = _WIDE - arguments
        for number in program.running if wide else ():
            values = [*program.read[number], *program.written[number]]
            arrays = [(program.shape(value), value.bytes) for value in values]
            wide_arrays = [row for row in arrays if row[0].rank and row[0].element_type in wide]
            if wide_arrays:
                is_floating = any(shape.element_type in ("c128", "f64") for shape, _ in wide_arrays)
                size = fsum(size for _, size in wide_arrays) / 2
                yield self._match(number, size, is_floating, program)

    @staticmethod
    def _match(number: int, size: float, is_floating: bool, program: Program) -> Match:
        """Return that half of the bytes go, and half of the computing with such numbers."""
        limits = program.bounds.limits[number]
        saved = min(limits.memory, program.microseconds(size))
        saved += limits.compute / 2 if is_floating else 0.0
        return Match((number,), limits.total, limits.total - saved, size)
