"""Totals over all kernels and pairs of a module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import attrgetter

from fusionscope.facts.bounds import Bounds
from fusionscope.facts.clock import KernelTime
from fusionscope.facts.result import (
    AlikeKernels,
    KernelFacts,
    KindFacts,
    PairFacts,
    ReasonFacts,
    Refusals,
)
from fusionscope.facts.source_lines import user_line
from fusionscope.grouping import grouped
from fusionscope.history.kernels import Kernel


def kernel_facts(
    kernel: Kernel, time: KernelTime | None, bounds: Bounds | None, number: int
) -> KernelFacts:
    """Return the facts about the kernel with this number."""
    place = user_line(kernel.instruction.stack)
    return KernelFacts(
        name=kernel.name,
        kind=kernel.kind,
        emitter=kernel.emitter,
        computation=kernel.computation,
        members=kernel.operations,
        bytes_read=kernel.bytes_read,
        bytes_written=kernel.bytes_written,
        runs=kernel.runs,
        runs_known=kernel.runs_known,
        launches=kernel.launches,
        source=str(place) if place else None,
        op_name=kernel.instruction.op_name,
        time_ns=time.nanoseconds if time is not None else None,
        time_source=time.source if time is not None else None,
        at_best_us=bounds.at_best((number,)).time_us if bounds is not None else None,
        limited_by=bounds.limits[number].limited_by if bounds is not None else None,
    )


def group_kinds(kernels: list[KernelFacts]) -> dict[str, KindFacts]:
    by_kind = grouped((kernel.kind, kernel) for kernel in kernels)
    kinds = {
        kind: KindFacts(
            len(alike),
            sum(kernel.launches for kernel in alike),
            sum(kernel.bytes_moved for kernel in alike),
        )
        for kind, alike in by_kind.items()
    }
    return dict(sorted(kinds.items(), key=lambda row: -row[1].bytes_moved))


def group_kernels(kernels: list[KernelFacts]) -> tuple[AlikeKernels, ...]:
    figures = attrgetter(
        "kind", "emitter", "bytes_read", "bytes_written", "runs", "launches", "source"
    )
    alike = grouped(((*figures(kernel), *sorted(kernel.members)), kernel) for kernel in kernels)
    heaviest = [
        AlikeKernels(
            kernels_alike[0],
            len(kernels_alike),
            sum(kernel.bytes_moved for kernel in kernels_alike),
        )
        for kernels_alike in alike.values()
    ]
    return tuple(sorted(heaviest, key=lambda kernels: -kernels.bytes_moved))


def group_reasons(facts: list[PairFacts]) -> dict[str, ReasonFacts]:
    by_reason = grouped((fact.reason, fact) for fact in facts if fact.reason is not None)
    reasons = {
        reason: ReasonFacts(
            pairs[0].title or "", len(pairs), sum(pair.bytes_saved for pair in pairs)
        )
        for reason, pairs in by_reason.items()
    }
    return dict(sorted(reasons.items(), key=lambda row: -row[1].bytes_saved))


def group_refusals(
    facts: list[PairFacts], reason_of: Callable[[PairFacts], str | None]
) -> tuple[Refusals, ...]:
    return tuple(
        Refusals(group[0], len(group), sum(fact.bytes_saved for fact in group))
        for group in group_alike(facts, reason_of)
    )


def group_alike(
    facts: Iterable[PairFacts], reason_of: Callable[[PairFacts], str | None]
) -> list[list[PairFacts]]:
    """Return pairs that look alike and were refused for the same reason, the costliest first."""
    alike: dict[tuple[object, ...], list[PairFacts]] = defaultdict(list)
    for fact in facts:
        reason = reason_of(fact)
        if reason is not None:
            ends = [(end.opcode, end.shape, end.source) for end in (fact.producer, fact.consumer)]
            alike[(reason, *ends)].append(fact)
    groups = [sorted(group, key=lambda fact: -fact.bytes_saved) for group in alike.values()]
    return sorted(groups, key=lambda group: -sum(fact.bytes_saved for fact in group))
