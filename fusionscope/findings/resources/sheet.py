"""Registers, spills and occupancy of kernels in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.findings.resources.facts import OverFused, SpillCost, SpillTrial
from fusionscope.words.section import Block, Entry, Section, lines, ranked, spans, strong
from fusionscope.words.text import duration, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import (
        KernelFacts,
        KernelResources,
        ModuleFacts,
    )


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the kernels with known resources, those that spill most first."""
    kernels = _with_resources(module.kernels)
    if not kernels:
        return
    entries = [
        Entry(
            label=f"{rank}.",
            name=strong(kernel.name),
            figures=(kernel.source or "",),
            lines=lines(_words(kernel, resources)).lines,
        )
        for rank, (kernel, resources) in enumerate(kernels[:top], 1)
    ]
    blocks: list[Block] = [ranked("kernel", entries, len(kernels), ("source",))]
    over_fused = module.find(OverFused)
    if over_fused is not None:
        blocks.append(lines(_advice(over_fused)))
    yield Section(
        title="Registers and spills",
        summary=spans(f"{_spills(kernels)}{_assembly(kernels)}"),
        blocks=tuple(blocks),
    )


def words_on(kernel: KernelFacts) -> Iterator[str]:
    """Yield the lines about one kernel, none if nothing is known."""
    if kernel.resources is not None:
        yield from _words(kernel, kernel.resources)


def _advice(over_fused: OverFused) -> Iterator[str]:
    """Yield the change that helps most, and the others that were tried."""
    best = next((trial for trial in over_fused.tried if trial.change == over_fused.best), None)
    if best is None:
        yield f"against the spills: nothing known that helps ({_cost(over_fused.before)})"
    else:
        yield f"against the spills, try {best.change}: {_came_of(over_fused.before, best)}"
    for trial in over_fused.tried:
        if trial is not best:
            yield f"tried {trial.change}: {_came_of(over_fused.before, trial)}"


def _came_of(before: SpillCost, trial: SpillTrial) -> str:
    after = trial.after
    if after is None:
        return trial.problem
    words = [f"spills {size(before.spill_bytes)} → {size(after.spill_bytes)}"]
    if (before.launches, before.bytes_moved) != (after.launches, after.bytes_moved):
        words.append(f"launches {before.launches:,} → {after.launches:,}")
        words.append(f"bytes {size(before.bytes_moved)} → {size(after.bytes_moved)}")
    if before.total_us is not None and after.total_us is not None:
        words.append(f"time with spills {duration(before.total_us)} → {duration(after.total_us)}")
    return ", ".join(words) + " (compiled)"


def _cost(cost: SpillCost) -> str:
    words = f"{size(cost.spill_bytes)} spilled"
    return words if cost.total_us is None else f"{words}, {duration(cost.total_us)} with spills"


def _words(kernel: KernelFacts, resources: KernelResources) -> Iterator[str]:
    shared = ""
    if resources.shared_bytes is None:
        shared = ", an unknown amount of shared memory"
    elif resources.shared_bytes:
        shared = f", {size(resources.shared_bytes)} of shared memory a block"
    yield (
        f"{plural(resources.registers, 'register')}{shared}; "
        f"{plural(resources.blocks, 'block')} of "
        f"{plural(resources.threads_per_block, 'thread')}; occupancy {_occupancy(resources)}"
    )
    if resources.spill_bytes:
        begin = "over-fused: " if len(kernel.members) > 1 else ""
        yield (
            f"{begin}each thread spills {resources.spill_store_bytes:,} bytes and loads "
            f"{resources.spill_load_bytes:,}: {size(resources.spill_bytes)} a launch, which the "
            f"estimate of {_time(kernel) or 'its time'} does not count, beside "
            f"{size(kernel.bytes_read + kernel.bytes_written)} of operands and results"
        )


def _with_resources(kernels: Sequence[KernelFacts]) -> list[tuple[KernelFacts, KernelResources]]:
    rows = [(kernel, kernel.resources) for kernel in kernels if kernel.resources is not None]
    return sorted(rows, key=lambda row: (-row[1].spill_bytes * row[0].runs, -row[0].time_us))


def _assembly(kernels: Sequence[tuple[KernelFacts, KernelResources]]) -> str:
    """Return how long ptxas took, and for which kernel longest."""
    times = [
        (resources.assembly_ms, kernel.name)
        for kernel, resources in kernels
        if resources.assembly_ms is not None
    ]
    if not times:
        return ""
    longest, name = max(times)
    most = f", {duration(1000 * longest)} of it on {name}" if len(times) > 1 else ""
    return f"; ptxas spent {duration(1000 * fsum(time for time, _ in times))}{most}"


def _spills(kernels: Sequence[tuple[KernelFacts, KernelResources]]) -> str:
    spilling = [(kernel, resources) for kernel, resources in kernels if resources.spill_bytes]
    if not spilling:
        return f"none of {plural(len(kernels), 'kernel')} spills"
    spilled = sum(resources.spill_bytes * kernel.runs for kernel, resources in spilling)
    moved = sum(kernel.bytes_moved for kernel, _ in spilling)
    verb = "spills" if len(spilling) == 1 else "spill"
    return (
        f"{len(spilling):,} of {plural(len(kernels), 'kernel')} {verb}, {size(spilled)} a run "
        f"beside {size(moved)} of operands and results"
    )


def _occupancy(resources: KernelResources) -> str:
    if resources.occupancy is None:
        return "unknown"
    return f"{resources.occupancy:.0%} (limited by {resources.occupancy_limit})"


def _time(kernel: KernelFacts) -> str:
    return duration(kernel.time_ns / 1000) if kernel.time_ns is not None else ""
