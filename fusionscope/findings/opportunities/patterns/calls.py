"""Kernels side by side, calls of the host, and wide types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import fsum

from fusionscope.facts.result import Limit
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.opportunities.patterns.program import Match, Program
from fusionscope.graph.aliasing import read_aliasing
from fusionscope.grouping import grouped
from fusionscope.history.handoffs import OUTSIDE
from fusionscope.history.kernels import KernelKind
from fusionscope.history.meaning import normal_attributes
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.search import reachable

_MOVING = frozenset(
    """broadcast concatenate copy dynamic-slice gather iota pad reshape reverse slice
    transpose""".split()
)
_HOST = frozenset({"infeed", "outfeed", "recv", "send"})
_HOST_SPACE = 5


def _levels(kernels: list[int], program: Program) -> list[list[int]]:
    """Return these kernels in groups, of which none depends on another one of its group."""
    levels: dict[int, int] = {}
    for number in kernels:
        makers = program.earlier[number] & levels.keys()
        levels[number] = max((levels[maker] + 1 for maker in makers), default=0)
    return list(grouped((level, number) for number, level in levels.items()).values())


def _in_fewer_launches(kernels: list[int], program: Program) -> Match:
    """Return that the kernels of a level could be launched at once."""
    levels = _levels(kernels, program)
    limits = program.bounds.limits
    saved = fsum(limits[kernel].launches for level in levels for kernel in level[1:])
    time_us = program.time_of(kernels)
    return Match(tuple(kernels), time_us, time_us - saved, 0.0)


@dataclass(frozen=True)
class AlikeKernels:
    """Small kernels of one line that compute something of an argument each, such as an optimizer
    of the arrays of a model, and of which several could run at once.

    least: kernels
    """

    id = "alike-kernels"
    title = "a small kernel for each of many arrays, {}"
    advice = "join the arrays, as optax.flatten does with parameters, or stack them"

    least: int = 8

    def matches(self, program: Program) -> Iterator[Match]:
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for number in program.running:
            kernel = program.kernels[number]
            line = user_line(kernel.instruction.stack) if self._is_one(number, program) else None
            if line is not None:
                alike[kernel.path, line].append(number)
        for kernels in alike.values():
            if len(kernels) >= self.least:
                yield _in_fewer_launches(kernels, program)

    @staticmethod
    def _is_one(number: int, program: Program) -> bool:
        """Return whether a kernel outside of loops is small, and computes something of an
        argument.
        """
        is_small = program.bounds.limits[number].limited_by is Limit.LAUNCHES
        is_other = program.work(number) <= _MOVING or program.is_product(number)
        is_other |= bool(program.handoffs.around[number])
        return is_small and not is_other and OUTSIDE in program.makers(number)


@dataclass(frozen=True)
class CopiedResult:
    """Donated arguments or results are copied, since a result has the memory of another argument:
    JAX gives results that of donated arguments of their shape in the order of both.

    least: copies of one shape
    """

    id = "copied-result"
    title = "copies for donated arguments, {}"
    advice = "return the donated arguments in the order in which they are passed"

    least: int = 2

    def matches(self, program: Program) -> Iterator[Match]:
        donated = _donated(program.module)
        alike: dict[str, list[int]] = defaultdict(list)
        entry: Computation | None = None
        for number in program.with_operation("copy") if donated else ():
            copy = program.kernels[number].instruction
            entry = copy.computation.module.entry
            if copy.opcode == "copy" and self._is_for_result(copy, set(donated.values())):
                alike[str(copy.shape)].append(number)
        shapes = _displaced(entry, donated) if entry is not None and alike else frozenset()
        for shape, kernels in alike.items():
            if len(kernels) >= self.least and shape in shapes:
                yield from map(program.without, kernels)

    @staticmethod
    def _is_for_result(copy: Instruction, donated: set[str]) -> bool:
        """Return whether a plain copy is one of a donated argument, or of something else that is
        computed, for the caller alone.
        """
        source = _source(copy)
        is_outside = copy.computation is copy.computation.module.entry
        is_result = bool(copy.users) and all(user.is_root for user in copy.users)
        is_kept = source.name in donated and all(user.opcode != "tuple" for user in copy.users)
        is_made = source.opcode != "parameter" and is_result
        return is_outside and copy.shape == copy.operands[0].shape and (is_kept or is_made)


def _donated(module: Module) -> dict[int, str]:
    """Return the names of the donated parameters by the number of the result in their memory."""
    aliasing = read_aliasing(module.attributes.get("input_output_alias", ""))
    names = {parameter.parameter_number: parameter.name for parameter in module.entry.parameters}
    return {result[0] if result else 0: names[slot] for slot, result, _ in aliasing}


def _displaced(entry: Computation, donated: Mapping[int, str]) -> frozenset[str]:
    """Return the shapes of results that are computed from a donated argument of their shape, but
    not from that whose memory they have.
    """
    results = entry.root.operands if entry.root.opcode == "tuple" else (entry.root,)
    shapes: set[str] = set()
    for number, name in donated.items():
        shape = str(results[number].shape)
        sources = _read_for(results[number]) if shape not in shapes else set()
        alike = {source.name for source in sources if str(source.shape) == shape}
        if alike & set(donated.values()) and all(
            value.name != name for value in reachable(sources, lambda value: value.operands)
        ):
            shapes.add(shape)
    return frozenset(shapes)


def _source(value: Instruction) -> Instruction:
    """Return what a value is a copy or a part of."""
    while value.opcode in ("bitcast", "copy", "get-tuple-element"):
        value = value.operands[0]
    return value


def _read_for(result: Instruction) -> set[Instruction]:
    """Return what the kernel that computes a result reads for it, through copies."""
    part = 0
    while result.opcode in ("bitcast", "copy", "get-tuple-element"):
        if result.opcode == "get-tuple-element":
            part = int(result.attributes["index"])
        result = result.operands[0]
    if result.opcode != "fusion":
        return set(map(_source, result.operands))
    root = result.called[0].root
    computed = root.operands[part] if root.opcode == "tuple" else root
    inside = reachable([computed], lambda value: value.operands)
    slots = [value.parameter_number for value in inside if value.opcode == "parameter"]
    return {_source(result.operands[slot]) for slot in slots if slot is not None}


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
            match = _in_fewer_launches(kernels, program)
            if match.at_best_us < match.time_us:
                yield match

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
