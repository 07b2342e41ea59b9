"""What loops waste."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from fusionscope.facts.limits import sum_of_limits
from fusionscope.facts.needed_bytes import LoopNeeds
from fusionscope.facts.result import Limit
from fusionscope.findings.opportunities.patterns.program import Match, Program
from fusionscope.findings.opportunities.patterns.recurrences import is_recurrence
from fusionscope.history.handoffs import OUTSIDE
from fusionscope.history.loops import is_counted

_MOVING = frozenset("broadcast copy dynamic-slice reshape reverse slice transpose".split())


def _is_launch_bound(step: LoopNeeds, program: Program) -> bool:
    limits = sum_of_limits(program.bounds.limits[kernel] for kernel in step.kernels)
    return limits is not None and limits.limited_by is Limit.LAUNCHES


def _whole(step: LoopNeeds, program: Program) -> Match:
    """Return that one kernel could run all steps."""
    return program.as_one(step.kernels, step.loop.name, runs=1)


class Recurrence:
    """Short steps of a loop, whose number is known, compute ``h = a * h + b`` with ``a`` and ``b``
    that do not depend on ``h``.
    """

    id = "recurrence"
    title = "linear recurrence in {}"
    advice = "compute it with jax.lax.associative_scan, or unroll the loop"

    def matches(self, program: Program) -> Iterator[Match]:
        for step in program.steps:
            if (
                _is_launch_bound(step, program)
                and is_counted(step.loop)
                and is_recurrence(step.loop)
            ):
                yield _whole(step, program)


class SearchLoop:
    """A binary search by ``jnp.searchsorted`` is a loop of some steps over all values."""

    id = "search-loop"
    title = "search by {}"
    advice = 'jnp.searchsorted with method="sort", or "compare_all" for few bins'

    def matches(self, program: Program) -> Iterator[Match]:
        for step in program.steps:
            if "_searchsorted_scan_impl" in (step.loop.op_name or ""):
                yield _whole(step, program)


@dataclass(frozen=True)
class RandomInLoop:
    """A loop draws random bits in each step.

    rounds: ``xor`` operations in a kernel that computes bits by threefry
    """

    id = "random-in-loop"
    title = "random bits in each step of {}"
    advice = "draw them for all steps before the loop"

    rounds: int = 16

    def matches(self, program: Program) -> Iterator[Match]:
        loops: dict[int, list[int]] = defaultdict(list)
        for number in program.with_operation("xor", "rng-bit-generator", "custom-call"):
            around = program.handoffs.around[number]
            if around and self._draws(number, program):
                loops[max(around)].append(number)
        for loop, kernels in loops.items():
            yield self._match(kernels, program.handoffs.loops[loop].loop.name, program)

    def _draws(self, number: int, program: Program) -> bool:
        operations = program.kernels[number].operations
        return (
            operations.count("xor") >= self.rounds
            or "rng-bit-generator" in operations
            or "threefry" in program.target(number)
        )

    def _match(self, kernels: list[int], where: str, program: Program) -> Match:
        best = program.bounds.launch_us
        for number in kernels:
            kernel = program.kernels[number]
            drawn = program.microseconds(kernel.bytes_written * kernel.runs)
            best += drawn
            operands = kernel.instruction.operands
            if any(operand.shape.is_floating for operand in operands):  # it does more than draw
                moved = drawn + program.microseconds(kernel.bytes_moved)
                best += kernel.runs * program.bounds.launch_us + moved
        time_us = program.time_of(kernels)
        return Match(tuple(kernels), time_us, min(best, time_us), 0.0, where)


class Residuals:
    """A loop stores values in each step that the loop of its gradient reads."""

    id = "residuals"
    title = "values of each step stored for the gradient, {}"
    advice = "jax.checkpoint around chunks of the steps: they are computed again"

    def matches(self, program: Program) -> Iterator[Match]:
        pairs: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for handed in program.bounds.handed:
            first = program.handoffs.around[handed.maker] if handed.maker != OUTSIDE else None
            for reader, size in handed.readers:
                later = program.handoffs.around[reader] if reader != OUTSIDE else None
                if first and later and first.isdisjoint(later):
                    pair = pairs[min(first), min(later)]
                    pair[handed.maker] = max(pair[handed.maker], handed.bytes_written)
                    pair[reader] += size
        for (first_loop, later_loop), sizes in pairs.items():
            names = [program.handoffs.loops[n].loop.op_name or "" for n in (first_loop, later_loop)]
            if "transpose(" in names[1] and "transpose(" not in names[0]:
                yield self._match(first_loop, sizes, program)

    @staticmethod
    def _match(loop: int, sizes: dict[int, float], program: Program) -> Match:
        """Return the time of what is stored, and as the best that of the steps, again."""
        again = [n for n in program.running if loop in program.handoffs.around[n]]
        size = fsum(sizes.values())
        time_us = program.microseconds(size)
        best = min(time_us, program.bounds.at_best(again).time_us)
        where = program.handoffs.loops[loop].loop.name
        return Match(tuple(sizes), time_us, best, size, where)


@dataclass(frozen=True)
class Sliced:
    """A loop copies slices of an array that no step changes, such as weights stacked by layer.

    least: bytes of a slice
    """

    id = "sliced"
    title = "slices copied in each step, {}"
    advice = "unroll the loop, so that each step reads its part in place"

    least: int = 65_536

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.with_operation("dynamic-slice"):
            kernel = program.kernels[number]
            around = program.handoffs.around[number]
            is_copy = program.work(number) <= _MOVING and kernel.bytes_written >= self.least
            if is_copy and around and self._is_stack(number, max(around), program):
                yield program.without(number)

    @staticmethod
    def _is_stack(number: int, loop: int, program: Program) -> bool:
        """Return whether no step changes what a kernel cuts a slice from."""
        reads = program.handoffs.reads[number]
        places = [place for operand, places in reads if operand.shape.rank for place in places]
        return any(loop not in program.handoffs.places[place].loops for place in places)
