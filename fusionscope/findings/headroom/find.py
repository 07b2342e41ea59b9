"""Finds what limits a module, and the least time that it could take."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from fusionscope.facts.limits import Limits, sum_of_limits
from fusionscope.facts.needed_bytes import Needs
from fusionscope.findings.headroom.facts import Headroom, LoopBound


def find_headroom(needs: Needs) -> Headroom:
    """Return what limits the kernels of a module, and their bound."""
    bounds = needs.bounds
    limits = sum_of_limits(bounds.limits) or Limits()
    bound = bounds.at_best(range(len(bounds.limits)))
    return Headroom(
        launches_us=limits.launches,
        memory_us=limits.memory,
        compute_us=limits.compute,
        library_us=limits.library,
        unexplained_us=limits.unexplained,
        at_best_us=bound.time_us,
        at_best_by_step_us=_by_step(needs),
        at_best_bytes=bound.bytes,
        decided_by=bound.decides,
        loops=tuple(sorted(_loops(needs), key=lambda loop: loop.at_best_us - loop.time_us)),
    )


def _by_step(needs: Needs) -> float | None:
    """Return the least microseconds of one kernel for each step of a loop that is in no other one,
    and one for all outside of loops.
    """
    inside: set[int] = set()
    times = []
    for loop in needs.steps:  # an outer loop precedes those in it
        if inside.isdisjoint(loop.kernels):
            inside.update(loop.kernels)
            times.append(loop.by_step_us)
    outside = (kernel for kernel in range(len(needs.kernels)) if kernel not in inside)
    return fsum(times) + needs.bounds.at_best(outside).time_us if times else None


def _loops(needs: Needs) -> Iterator[LoopBound]:
    for loop in needs.steps:
        limits = sum_of_limits(needs.bounds.limits[kernel] for kernel in loop.kernels)
        if limits is not None:
            yield LoopBound(
                name=loop.loop.name,
                time_us=limits.total,
                limited_by=limits.limited_by,
                at_best_us=needs.bounds.at_best(loop.kernels).time_us,
                at_best_by_step_us=loop.by_step_us,
                state_bytes=loop.state_bytes,
            )
