"""The analysis of one module: what ``explain`` may be asked about it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.facts.bounds import Bounds
from fusionscope.facts.result import (
    KernelInput,
    KernelOutput,
    ModuleFacts,
    ModuleRow,
    WhatIf,
)
from fusionscope.hlo.source_location import SourceLocation


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an operation comes from: the framework's name, and the number of its call stack."""

    op_name: str | None
    stack: int


@dataclass(frozen=True, slots=True)
class PairOrigins:
    """The numbers of the call stacks of a producer and its consumer, and the number of the origin
    of the producer.

    The origin of an operation that a pass inserted is that of an operation nearby.
    """

    producer: int
    consumer: int
    origin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDetails:
    """One kernel, beyond its facts.

    ``hlo`` are the lines of what it computes, ``sources`` the lines of the program. ``began`` and
    ``ended`` are the numbers of the refused pairs whose consumer, or producer, is in it.
    """

    origin: int
    inputs: tuple[KernelInput, ...]
    outputs: tuple[KernelOutput, ...]
    hlo: tuple[str, ...]
    sources: tuple[str, ...]
    began: tuple[int, ...]
    ended: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything about one module that no filter, format or grouping changes.

    ``facts`` are those about all kernels and pairs, both in the order of the module, without what
    depends on the request, and without the members of neighbours that are kernels
    (``neighbours``). ``kernels`` and ``pairs`` are in the same order. A stack lists the numbers of
    its ``frames``, innermost first. ``bounds`` are those of the time of the kernels, None unless a
    GPU is known.
    """

    facts: ModuleFacts
    kernels: tuple[KernelDetails, ...]
    pairs: tuple[PairOrigins, ...]
    origins: tuple[Origin, ...]
    stacks: tuple[tuple[int, ...], ...]
    frames: tuple[SourceLocation, ...]
    bounds: Bounds | None = None

    def stack(self, number: int) -> tuple[SourceLocation, ...]:
        """Return the call stack with this number, innermost frame first."""
        return tuple(self.frames[frame] for frame in self.stacks[number])


@dataclass(frozen=True, slots=True)
class TriedChanges:
    """The effect of the requested changes, None if it is unknown, and why."""

    what_if: WhatIf | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Examined:
    """The cost of a module, and whether its instructions have call stacks and names."""

    row: ModuleRow
    has_stacks: bool
    has_names: bool


@dataclass(frozen=True, slots=True)
class ExaminedModules:
    """Modules of a dump in a given order, each None if it cannot be read, and why."""

    modules: tuple[Examined | None, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusedBytes:
    """The bytes that pass through memory in a run because pairs were not fused."""

    count: int
