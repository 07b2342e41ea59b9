"""What could be faster, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.findings import BRIEF
from fusionscope.findings.opportunities.facts import Opportunity, OpportunityKind
from fusionscope.words.section import Entry, Section, Tone, line, ranked, spans
from fusionscope.words.text import duration, file_and_line, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts
    from fusionscope.facts.suggestions import Suggestion


TITLE = "What could be faster"
_MANY = 20  # kernels: *Where it goes* alone shows the parts of a smaller module


# The recipes that do what is advised against an opportunity. Flags are in the advice itself.
_RECIPES = {
    OpportunityKind.SHORT_STEPS: ("unroll-loop",),
    OpportunityKind.CONVERTED: ("store-narrow",),
    "recurrence": ("unroll-loop",),
    "scatter-gradient": ("select-for-scatter",),
    "sliced": ("unroll-loop",),
    "strided-reduction": ("sum-in-parts",),
}


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield what could be faster, what gains most first."""
    yield from _section(module.find_all(Opportunity), top, {})


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the first of them. One that a suggestion answers names only its number."""
    opportunities = _first(module)
    changes = module.suggestions.helpful if module.suggestions is not None else ()
    time = module.summary.time
    total = time.microseconds if time is not None else 0.0
    answers = {row: words for row in opportunities if (words := _answer(row, changes, total))}
    yield from _section(opportunities, BRIEF, answers)


def _answer(opportunity: Opportunity, changes: Iterable[Suggestion], total: float) -> str:
    """Return text such as *try 1*, nothing if none of ``changes`` helps there. The module takes
    ``total`` microseconds.
    """
    for change in changes:
        if change.kind == "recipe":
            is_there = opportunity.source in (*change.sources, None) or any(
                opportunity.where in pair for pair in change.pairs
            )
            is_answer = is_there and change.change in _RECIPES.get(opportunity.id, ())
        else:
            is_answer = change.change in opportunity.advice
        if opportunity.id == OpportunityKind.SHORT_STEPS and change.evidence != "untried":
            # What saves more time than all takes outside of a loop saves time in it.
            is_in_loop = change.saved_us > total - opportunity.time_us
            is_answer |= is_in_loop and change.saved_launches > 0
        if is_answer:
            is_tried = change.evidence != "untried"
            return f"try {change.number}" if is_tried else f"recipe {change.number} matches"
    return ""


def without_parts(module: ModuleFacts) -> list[Opportunity]:
    """Return those that are no parts of the program: *Where it goes* shows the bounds of parts."""
    return [row for row in module.find_all(Opportunity) if not _is_part(row)]


def _is_part(opportunity: Opportunity) -> bool:
    return opportunity.id == OpportunityKind.ONE_KERNEL


def _first(module: ModuleFacts) -> list[Opportunity]:
    """Return those without parts, and as the last one that the first screen shows, the part that
    gains more than all that it shows of them, if there is one in a module of many kernels.
    """
    rows = without_parts(module)
    if len(module.kernels) < _MANY:
        return rows
    gain_us = fsum(row.gain_us for row in rows[:BRIEF])
    parts = filter(_is_part, module.find_all(Opportunity))
    larger = (part for part in parts if part.gain_us > gain_us)
    return [*rows[: BRIEF - 1], *islice(larger, 1), *rows[BRIEF - 1 :]]


def _section(
    opportunities: Sequence[Opportunity], top: int | None, answers: Mapping[Opportunity, str]
) -> Iterator[Section]:
    if not opportunities:
        return
    entries = [
        _entry(rank, row, answers.get(row, row.advice))
        for rank, row in enumerate(opportunities[:top], 1)
    ]
    is_assumed = any(opportunity.parameters for opportunity in opportunities)
    words = "arguments of several arrays that no call returns or donates are taken to stay the same"
    yield Section(
        title=TITLE,
        summary=spans((words, Tone.QUIET)) if is_assumed else (),
        blocks=(ranked("opportunity", entries, len(opportunities)),),
    )


def _entry(rank: int, opportunity: Opportunity, advice: str) -> Entry:
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
        lines=(line(f"{gain}{moved}: {advice}"),),
    )
