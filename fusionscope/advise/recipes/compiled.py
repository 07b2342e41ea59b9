"""What a module compiles to: its figures and its kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.dump.tpu_target import TpuTarget
from fusionscope.facts.result import TimeSource
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import clock_for, figures_of, sum_up
from fusionscope.history.kernels import Kernel, launches_of
from fusionscope.history.operations import plain_shape
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget

_ARRAY = 64  # bytes; what moves fewer computes a scalar
_MOVES = frozenset("bitcast broadcast convert copy reshape slice transpose".split())


class Work(NamedTuple):
    """What a kernel does, apart from names and layouts."""

    operations: tuple[str, ...]
    shape: str = ""
    bytes_read: int = 0
    bytes_written: int = 0
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """``kernels`` counts those that do the same, and ``times`` has how many microseconds all runs
    of one take. Of ``unpriced`` launches only the least time is known: they move arrays, and the
    program waits for them.
    """

    figures: Figures
    kernels: Counter[Work]
    times: dict[Work, float]
    unpriced: int = 0

    def time_apart_from(self, edited: Compiled, final: Compiled) -> float:
        """Return the time of the kernels that an edit changes and that ``final`` does not have:
        this is a part of its program, compiled alone, and ``edited`` the same after the edit. With
        that of kernels that the edit adds and that only move data: in the program, what reads them
        may do that.
        """
        foreign = (self.kernels - edited.kernels) - final.kernels
        moving = (edited.kernels - self.kernels) - final.kernels
        return sum(self.times[kernel] * count for kernel, count in foreign.items()) + sum(
            edited.times[kernel] * count
            for kernel, count in moving.items()
            if _MOVES.issuperset(kernel.operations)
        )


@dataclass(frozen=True, slots=True)
class CompiledEdit:
    """What a part of which there are ``times`` equal ones compiles to, ``before`` and ``after`` an
    edit, or with further flags.
    """

    before: Compiled
    after: Compiled
    times: int


def changed_figures(before: Figures, edits: Iterable[CompiledEdit]) -> Figures:
    """Return the figures of a program after ``edits``: they change as those of its parts do."""
    for edit in edits:
        before = before.plus_difference(edit.before.figures, edit.after.figures, edit.times)
    return before


def read_compiled(
    final: Module, backend: str | None, target: GpuTarget | TpuTarget | None
) -> Compiled:
    """Return what a final module consists of. Raises ``UnusableInput`` if it contradicts itself."""
    kernels = launches_of(final, backend)
    clock = clock_for(final, backend, target)
    times = [clock.time(kernel) if clock is not None else None for kernel in kernels]
    by_work: dict[Work, float] = {}
    counts: Counter[Work] = Counter()
    for kernel, time in zip(kernels, times, strict=True):
        work = _work(kernel)
        counts[work] += 1
        by_work[work] = kernel.runs * time.nanoseconds / 1_000 if time is not None else 0.0
    total = sum_up(kernels, times) if clock is not None else None
    unpriced = sum(
        kernel.launches
        for kernel, time in zip(kernels, times, strict=True)
        if time is not None and time.source is TimeSource.FLOOR and _moves_arrays(kernel)
    )
    return Compiled(figures_of(kernels, total), counts, by_work, unpriced)


def _moves_arrays(kernel: Kernel) -> bool:
    return kernel.bytes_moved >= _ARRAY and not kernel.instruction.opcode.endswith("-start")


def _work(kernel: Kernel) -> Work:
    return Work(
        tuple(sorted(kernel.operations)),
        plain_shape(str(kernel.instruction.shape)),
        kernel.bytes_read,
        kernel.bytes_written,
        kernel.runs,
    )
