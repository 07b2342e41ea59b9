"""What could be faster, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings import BRIEF
from fusionscope.findings.opportunities.facts import Opportunity, OpportunityKind
from fusionscope.words.section import Entry, Section, Tone, line, ranked, spans
from fusionscope.words.text import duration, file_and_line, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts


TITLE = "What could be faster"


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield what could be faster, what gains most first."""
    yield from _section(module.find_all(Opportunity), top)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the first of them."""
    yield from _section(without_parts(module), BRIEF)


def without_parts(module: ModuleFacts) -> list[Opportunity]:
    """Return those that are no parts of the program: *Where it goes* shows the bounds of parts."""
    opportunities = module.find_all(Opportunity)
    return [row for row in opportunities if row.id != OpportunityKind.ONE_KERNEL]


def _section(opportunities: Sequence[Opportunity], top: int | None) -> Iterator[Section]:
    if not opportunities:
        return
    entries = [_entry(rank, row) for rank, row in enumerate(opportunities[:top], 1)]
    is_assumed = any(opportunity.parameters for opportunity in opportunities)
    words = "arguments of several arrays that no call returns or donates are taken to stay the same"
    yield Section(
        title=TITLE,
        summary=spans((words, Tone.QUIET)) if is_assumed else (),
        blocks=(ranked("opportunity", entries, len(opportunities)),),
    )


def _entry(rank: int, opportunity: Opportunity) -> Entry:
    what = opportunity.what
    place = file_and_line(opportunity.source)
    gain = (
        f"{duration(opportunity.time_us)}, at best {duration(opportunity.at_best_us)}"
        if opportunity.at_best_us
        else duration(opportunity.time_us)
    )
    moved = f", {size(opportunity.bytes)}" if opportunity.bytes else ""
    return Entry(
        label=f"{rank}.",
        name=spans(f"{what}, {place}" if place else what),
        lines=(line(f"{gain}{moved}: {opportunity.advice}"),),
    )
