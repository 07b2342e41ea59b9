"""Suggestions as Markdown, on a terminal and on a page: a part of an explanation."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.report.text import (
    Figure,
    cell,
    code,
    command_lines,
    duration,
    file_and_line,
    percent_change,
    plural,
    print_hidden,
    safe,
    shorten,
    size,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.explain.result import PairFacts
    from fusionscope.explain.suggestion import Answer, Suggestion, Suggestions

TITLE = "What to try"
REJECTED = "Tried, not worth it"
MATCHING = "Recipes that match, not tried here: --compile tries them"
UNMEASURED = "Not timed (--compile times them): launches and bytes say little on a CPU"
NOTHING = "nothing known that helps"
_NOTHING_YET = "nothing so far that helps"
_NOTHING_TRIED = "nothing tried so far"
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
        yield f"{first.number} fuses it and was not timed ({_differences(first)}){how}"
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


def _differences(each: Suggestion) -> str:
    """Return the differences in time, launches and bytes, with their signs."""
    before, after = each.before, each.after
    words = []
    if before.time_us is not None and after.time_us is not None:
        words.append(_signed(after.time_us - before.time_us, duration))
    if after.launches != before.launches:
        launches = after.launches - before.launches
        words.append(_signed(launches, lambda count: plural(count, "launch")))
    if after.bytes_moved != before.bytes_moved:
        words.append(_signed(after.bytes_moved - before.bytes_moved, size))
    return ", ".join(words) or "no difference"


def _signed(figure: Figure, written: Callable[[Figure], str]) -> str:
    return f"{'-' if figure < 0 else '+'}{written(abs(figure))}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A suggestion in words. ``head`` says what it is, if its ``command`` does not; a command is
    empty if there is none. ``outcome`` says what came of trying it, ``pairs`` are those it fuses.
    """

    number: int
    head: str
    command: tuple[str, ...]
    outcome: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Suggestions of one kind, under a ``heading``, which the first part lacks. ``shown`` are the
    first ones, ``noun`` is what they are called; ``hidden`` counts the others.
    """

    heading: str
    noun: str
    shown: tuple[Entry, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """What to try: ``words`` if nothing is known that helps, the suggestions, and notes. The parts
    ``rejected`` are not worth it.
    """

    words: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    rejected: tuple[Part, ...]


def sheet(suggestions: Suggestions, top: int | None) -> Sheet:
    """Return what to try; ``top`` limits each list, without it there are the rejected ones, too."""
    tried = [each for each in suggestions.helpful if each.evidence != "example"]
    matching = [each for each in suggestions.helpful if each.evidence == "example"]
    unmeasured, rejected = suggestions.unmeasured, suggestions.rejected if top is None else ()
    parts: tuple[tuple[str, str, Sequence[Suggestion]], ...] = (
        ("", "suggestion", tried),
        (f"{MATCHING}.", "recipe", matching),
        (f"{UNMEASURED}.", "change", unmeasured),
    )
    return Sheet(
        words=_none(suggestions) if not (tried or unmeasured) else "",
        parts=tuple(_part(heading, noun, found, top) for heading, noun, found in parts if found),
        notes=tuple(_notes(suggestions)),
        rejected=(_part(REJECTED, "change", rejected, top),) if rejected else (),
    )


def _part(heading: str, noun: str, found: Sequence[Suggestion], top: int | None) -> Part:
    shown = found[:top]
    return Part(heading, noun, tuple(map(_entry, shown)), len(found) - len(shown))


def _entry(each: Suggestion) -> Entry:
    head = "" if each.command else each.change
    if each.kind == "recipe":
        head = f"{each.title}{_places(each)}"
    return Entry(each.number, head, each.command, _what_came_of_it(each), each.pairs)


def to_markdown(suggestions: Suggestions | None, top: int | None) -> Iterator[str]:
    """Yield the lines of a table, with the rejected ones if ``top`` is None."""
    if suggestions is None:
        return
    found = sheet(suggestions, top)
    yield f"{TITLE}.\n"
    if found.words:
        yield f"{found.words}\n"
    for part in found.parts:
        yield from _table(part)
    for note in found.notes:
        yield f"> {cell(note)}\n"
    for part in found.rejected:
        yield from _table(part)


def _table(part: Part) -> Iterator[str]:
    if part.heading:
        yield f"{part.heading.rstrip('.')}.\n"
    yield "| | change | what came of it |"
    yield "|--:|---|---|"
    for entry in part.shown:
        change = ": ".join(filter(None, (cell(entry.head), code(shlex.join(entry.command)))))
        yield f"| {entry.number} | {change} | {cell(entry.outcome)} |"
    yield ""


def print_suggestions(
    suggestions: Suggestions | None, console: Console, *, top: int | None
) -> None:
    """Print them to a terminal; ``top`` limits the list, None shows the rejected ones, too."""
    from rich.padding import Padding
    from rich.text import Text

    if suggestions is None:
        return
    found = sheet(suggestions, top)
    console.print(Text(f"\n  {TITLE}", style="bold"))
    if found.words:
        more = " (--all shows them)" if suggestions.rejected and not found.rejected else ""
        console.print(Text(f"  {found.words}{more}"))
    for part in found.parts:
        if part.heading:
            console.print(Padding(Text(part.heading), (0, 0, 0, 2)))
        _print_part(part, console)
    for note in found.notes:
        console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
    for part in found.rejected:
        console.print(Text(f"\n  {part.heading}", style="bold"))
        _print_part(part, console)


def _print_part(part: Part, console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    width = max((len(str(entry.number)) for entry in part.shown), default=1)
    indent = width + 4
    for entry in part.shown:
        label = f"{entry.number:>{width}}. "
        if entry.head:
            table = Table.grid()
            table.add_column()
            table.add_column(overflow="fold")
            table.add_row(label, Text(safe(entry.head), style="cyan"))
            console.print(Padding(table, (0, 0, 0, 2)))
            label = " " * len(label)
        for line in command_lines(entry.command, console.width - indent):
            # A terminal may break the line; a line break in a word cannot be copied.
            console.print(Text(f"  {label}{line}", style="cyan"), soft_wrap=True)
            label = " " * len(label)
        console.print(Padding(Text(entry.outcome), (0, 0, 0, indent)))
    print_hidden(console, 2, len(part.shown) + part.hidden, len(part.shown), part.noun)


def _places(each: Suggestion) -> str:
    """Return text such as *, at step.py:9 and 2 more lines*."""
    if not each.sources:
        return ""
    more = len(each.sources) - 1
    first = file_and_line(each.sources[0])
    return f", at {first}" + (f" and {plural(more, 'more line')}" if more else "")


def _what_came_of_it(each: Suggestion) -> str:
    if each.evidence == "example":
        return "not tried here"
    before, after = each.before, each.after
    words = [
        _times(each),
        f"launches {before.launches:,} → {after.launches:,}",
        f"bytes {size(before.bytes_moved)} → {size(after.bytes_moved)}",
        f"fuses {plural(len(each.pairs), 'refused pair')}" if each.pairs else "",
    ]
    return f"{', '.join(filter(None, words))} ({_evidence(each)})"


def _evidence(each: Suggestion) -> str:
    """Return how a change was tried, and why it is not worth it."""
    return f"{each.evidence}; {each.why_not}" if each.why_not else each.evidence


def _times(each: Suggestion) -> str:
    """Return text such as *time 120 µs → 110 µs (-8.3%)*."""
    before, after = each.before.time_us, each.after.time_us
    if before is None or after is None:
        return ""
    share = f" ({percent_change(before, after)})" if before else ""
    return f"time {duration(before)} → {duration(after)}{share}"


def _none(suggestions: Suggestions) -> str:
    tried = len(suggestions.rejected)
    if suggestions.untried or not tried:
        return NOTHING if not suggestions.untried else _nothing_yet(suggestions)
    return f"{NOTHING}: {plural(tried, 'change')} tried"


def _nothing_yet(suggestions: Suggestions) -> str:
    return _NOTHING_YET if suggestions.is_tried else _NOTHING_TRIED


def _notes(suggestions: Suggestions) -> Iterator[str]:
    yield from suggestions.notes
    shown = (*suggestions.helpful, *suggestions.unmeasured, *suggestions.rejected)
    if suggestions.cannot_rerun and any(each.kind != "recipe" for each in shown):
        yield f"these cannot be compiled from this dump: {suggestions.cannot_rerun}"
    if suggestions.untried:
        what = "more candidate" if suggestions.is_tried else "candidate"
        yield f"{plural(suggestions.untried, what)} would take too long to try: --all tries them"
