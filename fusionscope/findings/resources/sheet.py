"""Registers, spills and occupancy of kernels as Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, code, duration, plural, print_hidden, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import (
        KernelFacts,
        KernelResources,
        OverFused,
        SpillCost,
        SpillTrial,
    )

_TITLE = "Registers and spills"


def to_markdown(
    kernels: Sequence[KernelFacts], over_fused: OverFused | None, top: int | None
) -> Iterator[str]:
    """Yield the lines of a table, empty if nothing is known."""
    known = _known(kernels)
    if not known:
        return
    yield f"{_TITLE}: {_summary(known)}.\n"
    yield "| kernel | registers | spills of a thread | shared memory | occupancy | time | source |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for kernel, taken in known[:top]:
        columns = (
            code(kernel.name),
            str(taken.registers),
            f"{taken.spill_store_bytes:,} stored, {taken.spill_load_bytes:,} loaded",
            size(taken.shared_bytes) if taken.shared_bytes is not None else "unknown",
            _occupancy(taken),
            _time(kernel),
            cell(kernel.source or ""),
        )
        yield f"| {' | '.join(columns)} |"
    yield ""
    if over_fused is not None:
        for words in _advice(over_fused):
            yield f"- {cell(words)}"
        yield ""


def print_resources(
    kernels: Sequence[KernelFacts],
    over_fused: OverFused | None,
    console: Console,
    *,
    top: int | None,
) -> None:
    """Print them to a terminal; ``top`` limits the list."""
    from rich.padding import Padding
    from rich.text import Text

    known = _known(kernels)
    if not known:
        return
    console.print(Text(f"\n  {_TITLE}: {_summary(known)}", style="bold"))
    for rank, (kernel, taken) in enumerate(known[:top], 1):
        line = Text(f"  {rank}. ")
        line.append(safe(kernel.name), style="bold")
        line.append(f"  {safe(kernel.source or '')}".rstrip())
        console.print(line)
        for words in _words(kernel, taken):
            console.print(Padding(Text(safe(words)), (0, 0, 0, 5)))
    print_hidden(console, 2, len(known), top, "kernel")
    if over_fused is not None:
        for words in _advice(over_fused):
            console.print(Padding(Text(safe(words)), (0, 0, 0, 2)))


def _advice(over_fused: OverFused) -> Iterator[str]:
    """Yield the change that helps most, and the others that were tried."""
    best = over_fused.best
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


def words_on(kernel: KernelFacts) -> Iterator[str]:
    """Yield the lines about one kernel, none if nothing is known."""
    if kernel.resources is not None:
        yield from _words(kernel, kernel.resources)


def _words(kernel: KernelFacts, taken: KernelResources) -> Iterator[str]:
    shared = ""
    if taken.shared_bytes is None:
        shared = ", an unknown amount of shared memory"
    elif taken.shared_bytes:
        shared = f", {size(taken.shared_bytes)} of shared memory a block"
    yield (
        f"{plural(taken.registers, 'register')}{shared}; {plural(taken.blocks, 'block')} of "
        f"{plural(taken.threads_per_block, 'thread')}; occupancy {_occupancy(taken)}"
    )
    if taken.spill_bytes:
        begin = "over-fused: " if len(kernel.members) > 1 else ""
        yield (
            f"{begin}each thread spills {taken.spill_store_bytes:,} bytes and loads "
            f"{taken.spill_load_bytes:,}: {size(taken.spill_bytes)} a launch, which the estimate "
            f"of {_time(kernel) or 'its time'} does not count, beside {size(_moved(kernel))} of "
            "operands and results"
        )


def _known(kernels: Sequence[KernelFacts]) -> list[tuple[KernelFacts, KernelResources]]:
    """Return the kernels with known resources, those that spill most first."""
    known = [(kernel, kernel.resources) for kernel in kernels if kernel.resources is not None]
    return sorted(known, key=lambda each: (-each[1].spill_bytes * each[0].runs, -each[0].time_us))


def _summary(known: Sequence[tuple[KernelFacts, KernelResources]]) -> str:
    return f"{_spills(known)}{_assembly(known)}"


def _assembly(known: Sequence[tuple[KernelFacts, KernelResources]]) -> str:
    """Return how long ptxas took, and for which kernel longest."""
    timed = [
        (taken.assembly_ms, kernel.name) for kernel, taken in known if taken.assembly_ms is not None
    ]
    if not timed:
        return ""
    longest, name = max(timed)
    most = f", {duration(1000 * longest)} of it on {name}" if len(timed) > 1 else ""
    return f"; ptxas spent {duration(1000 * fsum(each for each, _ in timed))}{most}"


def _spills(known: Sequence[tuple[KernelFacts, KernelResources]]) -> str:
    spilling = [(kernel, taken) for kernel, taken in known if taken.spill_bytes]
    if not spilling:
        return f"none of {plural(len(known), 'kernel')} spills"
    spilled = sum(taken.spill_bytes * kernel.runs for kernel, taken in spilling)
    moved = sum(kernel.bytes_moved for kernel, _ in spilling)
    verb = "spills" if len(spilling) == 1 else "spill"
    return (
        f"{len(spilling):,} of {plural(len(known), 'kernel')} {verb}, {size(spilled)} a run beside "
        f"{size(moved)} of operands and results"
    )


def _moved(kernel: KernelFacts) -> int:
    return kernel.bytes_read + kernel.bytes_written


def _occupancy(taken: KernelResources) -> str:
    if taken.occupancy is None:
        return "unknown"
    return f"{taken.occupancy:.0%} (limited by {taken.occupancy_limit})"


def _time(kernel: KernelFacts) -> str:
    return duration(kernel.time_ns / 1000) if kernel.time_ns is not None else ""
