"""The effect of changed rules in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Section, Table, Tone, lines, spans
from fusionscope.words.text import duration, percent_change, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ChangedKernel, ChangedPair, WhatIf
    from fusionscope.facts.suggestions import Figures

_NAMED_KERNELS = 3
_COLUMNS = (
    Column("bytes", is_number=True),
    Column("producer -> consumer", is_flexible=True),
    Column("change"),
)


def sheet(effect: WhatIf, top: int | None) -> Section:
    """Return totals, the kernels that are gained and lost, and the pairs that change."""
    pairs = effect.pairs[:top]
    rows = tuple(
        (size(pair.bytes_between), f"{pair.producer} -> {pair.consumer}", _change(pair))
        for pair in pairs
    )
    notes = lines((f"note: {note}" for note in effect.notes), Tone.WARNING)
    hidden = len(effect.pairs) - len(pairs)
    table = Table(columns=_COLUMNS, rows=rows, noun="pair", hidden=hidden, has_head=False)
    return Section(
        title=f"Tried {effect.changes}:",
        summary=spans(f"{plural(len(effect.pairs), 'pair')} changed"),
        blocks=(lines(_totals(effect)), notes, table),
    )


def _totals(effect: WhatIf) -> Iterator[str]:
    replayed = _figures(effect.before, effect.after)
    final = _figures(*effect.final) if effect.final is not None else None
    if final != replayed:
        yield f"right after fusion: {replayed}"
    if final is not None:
        yield f"final module: {final}"
    if effect.peak is not None:
        yield f"peak of memory {size(effect.peak[0])} → {size(effect.peak[1])} (estimate)"
    for word, kernels in (("gone", effect.gone), ("new", effect.made)):
        if kernels:
            yield f"{word}: {_kernels(kernels)}"


def _figures(before: Figures, after: Figures) -> str:
    words = [
        f"launches {before.launches:,} → {after.launches:,}",
        f"bytes moved {size(before.bytes_moved)} → {size(after.bytes_moved)}",
    ]
    if before.time_us and after.time_us is not None:
        times = f"{duration(before.time_us)} → {duration(after.time_us)}"
        words.insert(0, f"time {times} ({percent_change(before.time_us, after.time_us)})")
    return ", ".join(words)


def _kernels(kernels: Sequence[ChangedKernel]) -> str:
    count = plural(len(kernels), "kernel")
    if any(kernel.time_us is None for kernel in kernels):
        return f"{count}, {size(sum(kernel.bytes_moved for kernel in kernels))}"
    names = [
        f"{kernel.name} {duration(kernel.time_us or 0)}" for kernel in kernels[:_NAMED_KERNELS]
    ]
    more = ", …" if len(kernels) > _NAMED_KERNELS else ""
    total = duration(fsum(kernel.time_us or 0 for kernel in kernels))
    return f"{count}, {total}: {', '.join(names)}{more}"


def _change(pair: ChangedPair) -> str:
    is_fused = pair.after in ("fused", "duplicated")
    rule = f" ({'was' if is_fused else 'now'} {pair.rule})" if pair.rule else ""
    follows = f", with {pair.follows}" if pair.follows else ""
    return f"{pair.before} → {pair.after}{rule}{follows}"
