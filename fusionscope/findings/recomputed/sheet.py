"""Values that several kernels compute, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.recomputed.facts import Recomputation, RecomputedValue
from fusionscope.words.section import Entry, Section, Tone, line, ranked, spans, strong
from fusionscope.words.text import duration, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_TITLE = "Computed more than once"
_LEAST_SHARE = 0.01  # the smallest share of a module's bytes or time that is listed


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Return the values, the costliest first. If ``top`` limits the list, None if all cost too
    little.
    """
    recomputed = module.find(Recomputation)
    groups = _groups(recomputed) if recomputed is not None else []
    if recomputed is None or not groups or (top is not None and not _matters(module, recomputed)):
        return
    tries = dict(_tries(module))
    entries = [_entry(rank, group, tries) for rank, group in enumerate(groups[:top], 1)]
    yield Section(
        title=_TITLE,
        summary=spans(_summary(recomputed)),
        blocks=(ranked("value", entries, len(groups), ("kernels", "alike")),),
    )


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Return what keeping a value saves; None if the replay without one of these fusions saves no
    time.
    """
    recomputed = module.find(Recomputation)
    if recomputed is None or not recomputed.values or not _matters(module, recomputed):
        return
    tried_values = [(value, tries) for value, tries in _tries(module) if tries]
    if not tried_values:
        return
    value, tries = tried_values[0]
    saving = f"Keeping {value} saves time: {tries}"
    yield Section(title=_TITLE, summary=spans(f"{_summary(recomputed)}. ", (saving, Tone.GOOD)))


def _tries(module: ModuleFacts) -> Iterator[tuple[str, str]]:
    """Yield each value, with the suggestions that keep it."""
    recomputed = module.find(Recomputation)
    for value in recomputed.values if recomputed is not None else ():
        name = value.value.name
        numbers = module.suggestions.keeping(name) if module.suggestions is not None else ()
        yield name, f"try {', '.join(map(str, numbers))}" if numbers else ""


def _groups(recomputed: Recomputation) -> list[list[RecomputedValue]]:
    """Return groups of values that look alike (the layers of a model)."""
    alike: dict[tuple[object, ...], list[RecomputedValue]] = defaultdict(list)
    for value in recomputed.values:
        operation = value.value
        kind = operation.opcode, operation.shape, operation.source
        alike[(*kind, len(value.kernels), value.operations)].append(value)
    return list(alike.values())


def _entry(rank: int, group: Sequence[RecomputedValue], tries: dict[str, str]) -> Entry:
    value = group[0]
    operation = value.value
    place = f" at {operation.source}" if operation.source else ""
    texts = (
        line(f"{operation.opcode} {operation.shape}{place}", Tone.QUIET),
        line(f"again: {_again(value)}"),
        line(tries.get(operation.name, ""), Tone.HINT),
    )
    return Entry(
        label=f"{rank}.",
        name=strong(operation.name),
        figures=(
            f"in {len(value.kernels):,} kernels",
            f"x{len(group):,} alike" if len(group) > 1 else "",
        ),
        lines=tuple(text for text in texts if text.text),
    )


def _matters(module: ModuleFacts, recomputed: Recomputation) -> bool:
    """Return whether one value costs a noticeable share of a module's bytes or time."""
    bytes_moved = module.summary.bytes_moved or 1
    time = module.summary.time
    time_ns = (1_000 * time.microseconds if time is not None else 0.0) or 1
    return any(
        max(value.bytes_again / bytes_moved, (value.time_again_ns or 0) / time_ns) >= _LEAST_SHARE
        for value in recomputed.values
    )


def _summary(recomputed: Recomputation) -> str:
    kernels = {kernel for value in recomputed.values for kernel in value.kernels}
    values = f"{plural(len(recomputed.values), 'value')} in {plural(len(kernels), 'kernel')}"
    return f"{values}; {recomputed.free:,} more cost nothing" if recomputed.free else values


def _again(value: RecomputedValue) -> str:
    text = f"{value.flops_again:,} flops, {size(value.bytes_again)} read"
    if value.time_again_ns is not None:
        text += f", {duration(value.time_again_ns / 1_000)} longer than reading it"
    program = f"; the program computes it {value.instructions:,} times"
    return f"{text}{program if value.instructions > 1 else ''}"
