"""Known faults of the compiler in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.findings.advisories.facts import Advisory
from fusionscope.words.section import Entry, Line, Section, Tone, line, ranked, spans, strong
from fusionscope.words.text import plural

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_TITLE = "Known faults of this compiler"


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the faults, those first that the module shows."""
    advisories = sorted(module.find_all(Advisory), key=lambda advisory: not advisory.is_certain)
    if not advisories:
        return
    wrong = sum(advisory.is_certain for advisory in advisories)
    summary = f"{plural(wrong, 'wrong result')}" if wrong else "results may be wrong"
    entries = [_entry(rank, advisory) for rank, advisory in enumerate(advisories[:top], 1)]
    yield Section(
        title=_TITLE,
        summary=spans(summary),
        blocks=(ranked("fault", entries, len(advisories), ("source",)),),
    )


def brief(module: ModuleFacts) -> Iterator[Section]:
    yield from sheet(module, None)


def _entry(rank: int, advisory: Advisory) -> Entry:
    return Entry(
        label=f"{rank}.",
        name=strong(advisory.id),
        figures=(advisory.source or "",),
        lines=tuple(_lines(advisory)),
    )


def _lines(advisory: Advisory) -> Iterator[Line]:
    first, *more = advisory.instructions
    also = f" and {len(more):,} more" if more else ""
    verb = "in" if advisory.is_certain else "possibly in"
    yield line(f"{advisory.title}: {verb} {first}{also}", Tone.BAD)
    yield line(f"jaxlib {advisory.since} and later, not {advisory.fixed_in}: {advisory.thread}")
    yield line(f"until then: {advisory.workaround}", Tone.HINT)
