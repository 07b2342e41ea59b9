"""Suggestions in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings import BRIEF
from fusionscope.findings.opportunities.facts import Opportunity
from fusionscope.findings.opportunities.sheet import TITLE as OPPORTUNITIES
from fusionscope.findings.opportunities.sheet import without_parts
from fusionscope.words.section import (
    Block,
    Entries,
    Entry,
    Line,
    Lines,
    Section,
    Tone,
    command,
    line,
    lines,
    ranked,
    spans,
)
from fusionscope.words.text import (
    Figure,
    duration,
    file_and_line,
    percent_change,
    plural,
    shorten,
    size,
)

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts, PairFacts
    from fusionscope.facts.suggestions import Answer, Figures, Suggestion, Suggestions, Together

TITLE = "What to try"
REJECTED = "Tried, not worth it"
MATCHING = "Recipes that match, not tried here (--compile tries them)"
_UNMEASURED = "Not timed (--compile times them{more}): launches and bytes say little on a CPU."
NOTHING = "nothing known that helps"
_NOTHING_YET = "nothing so far that helps"
_NOTHING_TRIED = "nothing tried so far"
_UNTRIED_ADVICE = f"; other advice, under {OPPORTUNITIES}, was not tried"
_LONGEST = 60  # characters of a change beside a refusal


def for_refusal(suggestions: Suggestions | None, pair: PairFacts, *, in_full: bool = True) -> str:
    """Return as ``for_pair`` does. An inferred rule cannot be replayed, so what its page advises
    could not be tried.
    """
    if pair.evidence != "inferred" or pair.reason is None:
        ends = pair.producer.name, pair.consumer.name
        return for_pair(suggestions, *ends, in_full=in_full)
    from fusionscope.rules.pages import read_page  # only dumps for TPUs need it

    lever = read_page(pair.reason).lever
    return f"not tried: {lever}" if lever else NOTHING


def is_without_help(suggestions: Suggestions | None, pair: PairFacts) -> bool:
    """Return whether nothing is known that would fuse a refused pair."""
    return bool(pair.reason) and for_refusal(suggestions, pair).startswith("nothing")


def for_pair(
    suggestions: Suggestions | None, producer: str, consumer: str, *, in_full: bool = True
) -> str:
    """Return text such as *try 1, 3*, or what was tried and does not help, and why; only the first
    of that unless ``in_full``. It is empty if nothing was tried, or the pair is not among the
    costliest and not everything was tried.
    """
    if suggestions is None:
        return ""
    numbers = suggestions.find(producer, consumer)
    if numbers:
        return f"try {', '.join(map(str, numbers))}"
    is_open = suggestions.is_open(producer, consumer)
    if matching := suggestions.matching(producer, consumer):
        return f"{', '.join(map(str, matching))} not tried here: --compile"
    answer = suggestions.answer(producer, consumer)
    if answer is None:
        return "" if is_open else NOTHING
    head = _nothing_yet(suggestions) if is_open else NOTHING
    words = list(_what_is_known(suggestions, answer, producer, consumer, in_full=in_full))
    return f"{head}: {'; '.join(words if in_full else words[:1])}" if words else head


def _what_is_known(
    suggestions: Suggestions, answer: Answer, producer: str, consumer: str, *, in_full: bool
) -> Iterator[str]:
    """Yield what fuses a pair and is no suggestion, with the figures of the least bad change; how
    much is untried; and in full, why nothing else is known, and what does not fuse it.
    """
    not_timed = suggestions.not_timed(producer, consumer)
    if not_timed:
        first = not_timed[0]
        how = ": --compile" if first.evidence == "replayed" else ""
        if in_full:
            yield f"{first.number} fuses it and was not timed ({_differences(first)}){how}"
        else:
            yield f"{first.number} fuses it, not timed{how}"
    rejected = suggestions.not_worth_it(producer, consumer)
    if rejected:
        first = rejected[0]
        more = f", as do {plural(len(rejected) - 1, 'other')}" if len(rejected) > 1 else ""
        what = f"{shorten(first.change, _LONGEST)} fuses it{more}" if in_full else "if it is fused"
        yield f"{what}: {_differences(first)} ({_evidence(first)})"
    if answer.untried:
        yield f"{plural(answer.untried, 'change')} not tried yet (--all)"
    if in_full and answer.why:
        yield answer.why.rstrip(".")
    if in_full and answer.in_vain:  # the first is for this pair if any is
        more = f" and {plural(len(answer.in_vain) - 1, 'other')}" if answer.in_vain[1:] else ""
        verb = "do" if more else "does"
        yield f"{shorten(answer.in_vain[0], _LONGEST)}{more} {verb} not fuse it"


def _differences(change: Suggestion) -> str:
    """Return the differences in time, launches and bytes, with their signs."""
    before, after = change.before, change.after
    words = []
    if before.time_us is not None and after.time_us is not None:
        words.append(_signed(after.time_us - before.time_us, duration))
    if after.launches != before.launches:
        launches = after.launches - before.launches
        words.append(_signed(launches, lambda count: plural(count, "launch")))
    if after.bytes_moved != before.bytes_moved:
        words.append(_signed(after.bytes_moved - before.bytes_moved, size))
    return ", ".join(words) or "no difference"


def _signed(figure: Figure, format_figure: Callable[[Figure], str]) -> str:
    return f"{'-' if figure < 0 else '+'}{format_figure(abs(figure))}"


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield what to try, nothing if nothing was tried."""
    yield from _sheet(module, top, has_advice=bool(module.find_all(Opportunity)))


def _sheet(
    module: ModuleFacts, top: int | None, *, has_advice: bool, is_brief: bool = False
) -> Iterator[Section]:
    if module.suggestions is not None:
        yield from sections(module.suggestions, top, has_advice=has_advice, is_brief=is_brief)


def sections(
    suggestions: Suggestions,
    top: int | None,
    *,
    has_advice: bool = False,
    is_brief: bool = False,
) -> Iterator[Section]:
    """Yield what to try; ``top`` limits each list, without it there are the rejected ones, too. If
    the report ``has_advice`` that needs a person, it is named where nothing helps. All recipes that
    were not tried are in one line if it ``is_brief``.
    """
    helpful = [change for change in suggestions.helpful if change.evidence != "untried"]
    matching = [change for change in suggestions.helpful if change.evidence == "untried"]
    rejected = suggestions.rejected if top is None else ()
    blocks: list[Block] = []
    if not (helpful or suggestions.unmeasured):
        more = " (--all shows them)" if suggestions.rejected and not rejected else ""
        advice = _UNTRIED_ADVICE if has_advice else ""
        blocks.append(lines([f"{_none(suggestions)}{more}{advice}"]))
    for heading, noun, changes in (
        ("", "suggestion", helpful),
        (f"{MATCHING}.", "recipe", matching if not is_brief else []),
        (_unmeasured(suggestions), "change", suggestions.unmeasured),
    ):
        blocks += [lines([heading])] if heading and changes else []
        has_evidence = noun != "change" or not is_brief  # the heading says enough
        blocks += [_entries(noun, changes, top, has_evidence=has_evidence)] if changes else []
        if noun == "suggestion" and suggestions.together is not None:
            blocks.append(Lines(tuple(_together(suggestions.together, in_full=top is None))))
    if is_brief and matching:
        words = ", ".join(f"{change.number} {change.change}" for change in matching)
        blocks.append(lines([f"{MATCHING}: {words}"]))
    blocks.append(lines((f"note: {note}" for note in _notes(suggestions)), Tone.WARNING))
    yield Section(title=TITLE, blocks=tuple(blocks))
    if rejected:
        yield Section(title=REJECTED, blocks=(_entries("change", rejected, top),), is_minor=True)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the first suggestions."""
    has_advice = bool(without_parts(module))
    return _sheet(module, BRIEF, has_advice=has_advice, is_brief=True)


def _entries(
    noun: str, changes: Sequence[Suggestion], top: int | None, *, has_evidence: bool = True
) -> Entries:
    entries = [_entry(change, has_evidence=has_evidence) for change in changes[:top]]
    return ranked(noun, entries, len(changes))


def _entry(change: Suggestion, *, has_evidence: bool) -> Entry:
    head = "" if change.command else change.change
    if change.kind == "recipe":
        head = f"{change.title}{_places(change)}"
    return Entry(
        label=f"{change.number}.",
        name=spans((head, Tone.HINT)),
        lines=tuple(_lines(change, has_evidence=has_evidence)),
        pairs=change.pairs,
    )


def _together(together: Together, *, in_full: bool) -> Iterator[Line]:
    """Yield what comes of the best suggestions together, in full also the command line, what each
    adds, and why others are left out.
    """
    *numbers, last = (str(step.number) for step in together.steps)
    head = f"{', '.join(numbers)} and {last} together" if together.excluded else "all of these"
    words = [f"{head}: {_figures(together.before, together.after)} ({together.evidence})"]
    words += [f"{exclusion.number} {exclusion.why}" for exclusion in together.excluded]
    yield line("; ".join(words))
    if in_full:
        steps = ", ".join(f"{step.number} {_amount(step.after)}" for step in together.steps)
        yield line(f"one after the other: {_amount(together.before)}, with {steps}")
    if together.command:
        yield command(together.command)


def _lines(change: Suggestion, *, has_evidence: bool) -> Iterator[Line]:
    """Yield the command line, and what came of it if it was tried."""
    if change.command:
        yield command(change.command)
    if change.evidence != "untried":
        yield line(_what_came_of_it(change, has_evidence=has_evidence))


def _places(change: Suggestion) -> str:
    """Return text such as *, at step.py:9 and 2 more lines*."""
    if not change.sources:
        return ""
    more = len(change.sources) - 1
    first = file_and_line(change.sources[0])
    return f", at {first}" + (f" and {plural(more, 'more line')}" if more else "")


def _what_came_of_it(change: Suggestion, *, has_evidence: bool) -> str:
    words = ", ".join(filter(None, (_figures(change.before, change.after), _pairs(change))))
    return f"{words} ({_evidence(change)})" if has_evidence else words


def _amount(figures: Figures) -> str:
    """Return the time, or the launches if no time is known."""
    if figures.time_us is not None:
        return duration(figures.time_us)
    return plural(figures.launches, "launch")


def _figures(before: Figures, after: Figures) -> str:
    """Return time, and the launches and bytes that change."""
    words = [_times(before.time_us, after.time_us)]
    for name, figures in (
        ("launches", (f"{before.launches:,}", f"{after.launches:,}")),
        ("bytes", (size(before.bytes_moved), size(after.bytes_moved))),
    ):
        if figures[0] != figures[1]:
            words.append(f"{name} {figures[0]} → {figures[1]}")
    return ", ".join(filter(None, words))


def _pairs(change: Suggestion) -> str:
    if not change.pairs:
        return ""
    is_region = change.evidence == "region" or change.kind == "recipe"
    verb = "concerns" if is_region and change.evidence != "measured" else "fuses"
    return f"{verb} {plural(len(change.pairs), 'pair')}"


def _evidence(change: Suggestion) -> str:
    """Return how a change was tried, and why it is not worth it."""
    return f"{change.evidence}; {change.why_not}" if change.why_not else change.evidence


def _times(before: float | None, after: float | None) -> str:
    """Return text such as *time 120 µs → 110 µs (-8.3%)*."""
    if before is None or after is None:
        return ""
    share = f" ({percent_change(before, after)})" if before else ""
    return f"time {duration(before)} → {duration(after)}{share}"


def _none(suggestions: Suggestions) -> str:
    head = _nothing_yet(suggestions) if suggestions.untried else NOTHING
    rejected_count = len(suggestions.rejected)
    return f"{head}: {plural(rejected_count, 'change')} tried" if rejected_count else head


def _nothing_yet(suggestions: Suggestions) -> str:
    return _NOTHING_YET if suggestions.is_tried else _NOTHING_TRIED


def _unmeasured(suggestions: Suggestions) -> str:
    """Return the heading of the changes that were not timed."""
    untried = suggestions.untried
    return _UNMEASURED.format(more=f", and tries {untried:,} more" if untried else "")


def _notes(suggestions: Suggestions) -> Iterator[str]:
    yield from suggestions.notes
    all_changes = (*suggestions.helpful, *suggestions.unmeasured, *suggestions.rejected)
    if suggestions.cannot_rerun and any(change.kind != "recipe" for change in all_changes):
        yield f"these cannot be compiled from this dump: {suggestions.cannot_rerun}"
    if suggestions.untried and not suggestions.unmeasured:
        what = "more candidate" if suggestions.is_tried else "candidate"
        yield f"{plural(suggestions.untried, what)} would take too long to try: --all tries them"
