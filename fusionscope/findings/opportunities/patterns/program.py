"""What patterns of waste are found in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple, Protocol

from fusionscope.facts.bounds import Handed
from fusionscope.facts.clock import products_of
from fusionscope.facts.needed_bytes import LoopNeeds, Needs
from fusionscope.graph.work import count_work
from fusionscope.history.handoffs import OUTSIDE
from fusionscope.history.kernels import Kernel, call_target, instructions_in
from fusionscope.history.thunks import NOT_LAUNCHED
from fusionscope.hlo import Instruction, Module, Shape


@dataclass(frozen=True, slots=True)
class Match:
    """Waste of one kind: the kernels by number, the one that shows it first; their time, what is
    left of it at least, and the bytes that need not be moved. ``where`` is a loop, if it is one.
    """

    kernels: tuple[int, ...]
    time_us: float
    at_best_us: float
    bytes: float
    where: str = ""


class Pattern(Protocol):
    """Waste that has a name. Its docstring says in one sentence what it is.

    id: as in ``opportunities[].id``
    title: what the program does, with ``{}`` for where
    advice: what to do instead
    """

    id: str
    title: str
    advice: str

    def matches(self, program: Program) -> Iterator[Match]:
        """Yield where a program does it."""


class Value(NamedTuple):
    """A value that a kernel reads or writes, and the bytes of it in a run."""

    handed: Handed
    bytes: float


class Program:
    """The kernels of a module by number, and the values that pass between them."""

    def __init__(self, needs: Needs, module: Module) -> None:
        self.needs, self.module = needs, module
        self.kernels: Sequence[Kernel] = needs.kernels
        self.bounds = needs.bounds
        self.handoffs = needs.handoffs
        self.steps: tuple[LoopNeeds, ...] = needs.steps
        self._products: dict[int, bool] = {}

    @cached_property
    def running(self) -> tuple[int, ...]:
        """The kernels that run at all."""
        return tuple(number for number, kernel in enumerate(self.kernels) if kernel.runs)

    def with_operation(self, *opcodes: str) -> Iterator[int]:
        """Yield the kernels that compute one of these operations."""
        numbers = (number for opcode in opcodes for number in self._by_operation[opcode])
        yield from dict.fromkeys(numbers)

    @cached_property
    def _by_operation(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = defaultdict(list)
        for number in self.running:
            for opcode in frozenset(self.kernels[number].operations):
                numbers[opcode].append(number)
        return numbers

    def inside(self, kernel: int, *opcodes: str) -> Iterator[Instruction]:
        """Yield the operations with these opcodes in a kernel."""
        for inner in instructions_in(self.kernels[kernel].instruction):
            if inner.opcode in opcodes:
                yield inner

    def work(self, kernel: int) -> frozenset[str]:
        """Return the operations of a kernel that take time."""
        return frozenset(self.kernels[kernel].operations) - NOT_LAUNCHED

    def is_product(self, kernel: int) -> bool:
        """Return whether a kernel computes matrix products or convolutions."""
        if kernel not in self._products:
            computed = products_of(self.kernels[kernel].instruction)
            self._products[kernel] = any(count_work(product).flops for product in computed)
        return self._products[kernel]

    def target(self, kernel: int) -> str:
        """Return what a custom call calls, empty for others."""
        instruction = self.kernels[kernel].instruction
        is_call = instruction.opcode == "custom-call"
        return call_target(instruction.statement.attributes) if is_call else ""

    def shape(self, value: Value) -> Shape:
        return self.handoffs.places[value.handed.place].shape

    @cached_property
    def written(self) -> dict[int, list[Value]]:
        """The values that each kernel writes and something reads."""
        values: dict[int, list[Value]] = defaultdict(list)
        for handed in self.bounds.handed:
            if handed.maker != OUTSIDE:
                values[handed.maker].append(Value(handed, handed.bytes_written))
        return values

    @cached_property
    def read(self) -> dict[int, list[Value]]:
        """The values that each kernel reads."""
        values: dict[int, list[Value]] = defaultdict(list)
        for handed in self.bounds.handed:
            for reader, size in handed.readers:
                values[reader].append(Value(handed, size))
        return values

    def readers(self, kernel: int) -> set[int]:
        """Return the kernels that read what one writes; ``OUTSIDE`` for a result."""
        return {reader for value in self.written[kernel] for reader, _ in value.handed.readers}

    def makers(self, kernel: int) -> set[int]:
        """Return the kernels that write what one reads; ``OUTSIDE`` for a parameter."""
        return {value.handed.maker for value in self.read[kernel]}

    @cached_property
    def earlier(self) -> list[frozenset[int]]:
        """The kernels that each one depends on, without those of the steps of a loop before."""
        earlier: list[frozenset[int]] = []
        for number in range(len(self.kernels)):
            makers = [maker for maker in self.makers(number) if OUTSIDE < maker < number]
            earlier.append(frozenset(makers).union(*(earlier[maker] for maker in makers)))
        return earlier

    def has_maximum(self, kernel: int) -> bool:
        """Return whether a kernel reduces an array to its largest elements."""
        reductions = self.inside(kernel, "reduce")
        return any(
            callee.root.opcode == "maximum"
            for reduction in reductions
            for callee in reduction.called
        )

    def microseconds(self, size: float) -> float:
        """Return in which time so many bytes are moved."""
        return size / self.bounds.bytes_per_us

    def time_of(self, kernels: Iterable[int]) -> float:
        return fsum(self.bounds.limits[kernel].total for kernel in kernels)

    def bytes_of(self, kernels: Iterable[int]) -> int:
        return sum(self.kernels[kernel].bytes_moved for kernel in kernels)

    def as_one(self, kernels: Collection[int], where: str = "", runs: int = 0) -> Match:
        """Return that these kernels could be one, which runs as often as one of them does at most,
        or ``runs`` times.
        """
        bound = self.bounds.at_best(kernels)
        runs = runs or max(self.kernels[kernel].runs for kernel in kernels)
        best = bound.time_us + (runs - 1) * self.bounds.launch_us
        size = max(0.0, self.bytes_of(kernels) - bound.bytes)
        return Match(tuple(kernels), self.time_of(kernels), best, size, where)

    def without(self, kernel: int) -> Match:
        """Return that a kernel need not be."""
        kernels = (kernel,)
        return Match(kernels, self.time_of(kernels), 0.0, self.bytes_of(kernels))

    def with_fewer_bytes(self, kernels: Collection[int], size: float) -> Match:
        """Return that these kernels could move so many bytes less."""
        memory = fsum(self.bounds.limits[kernel].memory for kernel in kernels)
        time_us = self.time_of(kernels)
        return Match(tuple(kernels), time_us, time_us - min(memory, self.microseconds(size)), size)
