"""Suggestions as Markdown and on a terminal: a part of an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fusionscope.report.text import (
    Figure,
    cell,
    code,
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
UNMEASURED = (
    "These make fewer launches or bytes. On a CPU this says little about time, and "
    "many such changes are slower: --compile compiles and times them"
)
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
    from fusionscope.rules.catalogue import find_page  # only dumps for TPUs need it

    lever = find_page(pair.reason).lever
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
        is_noise = first.evidence == "measured" and first.saved_us > 0
        doubt = ", within the noise" if is_noise else _doubt(first)
        yield f"{what}: {_differences(first)} ({first.evidence}{doubt})"
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


def to_markdown(suggestions: Suggestions | None, top: int | None) -> Iterator[str]:
    """Yield the lines of a table, with the rejected ones if ``top`` is None."""
    if suggestions is None:
        return
    yield f"{TITLE}.\n"
    if suggestions.helpful:
        yield from _table(suggestions.helpful[:top])
    elif not suggestions.unmeasured:
        yield f"{_none(suggestions)}\n"
    if suggestions.unmeasured:
        yield f"{UNMEASURED}.\n"
        yield from _table(suggestions.unmeasured[:top])
    for note in _notes(suggestions):
        yield f"> {cell(note)}\n"
    if top is None and suggestions.rejected:
        yield f"{REJECTED}.\n"
        yield from _table(suggestions.rejected)


def _table(suggestions: tuple[Suggestion, ...]) -> Iterator[str]:
    yield "| | change | launches | bytes | time | pairs fused | evidence |"
    yield "|--:|---|--:|--:|--:|--:|---|"
    for each in suggestions:
        yield (
            f"| {each.number} | {code(each.change)}{cell(_places(each))} "
            f"| {each.before.launches:,} → {each.after.launches:,} "
            f"| {_sizes(each)} | {cell(_times(each))} | {len(each.pairs):,} "
            f"| {each.evidence}{_doubt(each)} |"
        )
    yield ""


def print_suggestions(
    suggestions: Suggestions | None, console: Console, *, top: int | None
) -> None:
    """Print them to a terminal; ``top`` limits the list, None shows the rejected ones, too."""
    from rich.padding import Padding
    from rich.text import Text

    if suggestions is None:
        return
    console.print(Text(f"\n  {TITLE}", style="bold"))
    if not (suggestions.helpful or suggestions.unmeasured):
        console.print(Text(f"  {_none(suggestions)}"))
    _print_list(suggestions.helpful[:top], console)
    print_hidden(console, 2, len(suggestions.helpful), top, "suggestion")
    if suggestions.unmeasured:
        console.print(Padding(Text(f"{UNMEASURED}."), (0, 0, 0, 2)))
        _print_list(suggestions.unmeasured[:top], console)
        print_hidden(console, 2, len(suggestions.unmeasured), top, "change")
    for note in _notes(suggestions):
        console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
    if top is None and suggestions.rejected:
        console.print(Text(f"\n  {REJECTED}", style="bold"))
        _print_list(suggestions.rejected, console)


def _print_list(suggestions: tuple[Suggestion, ...], console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for each in suggestions:
        table.add_row(f"{each.number}.", Text(safe(_change(each)), style="cyan"))
        table.add_row("", Text(_what_came_of_it(each)))
    console.print(Padding(table, (0, 0, 0, 2)))


def _change(each: Suggestion) -> str:
    """Return the change as somebody would make it."""
    if each.kind == "rule":
        return f"fusionscope rerun DUMP {each.change}"
    if each.kind == "recipe":
        return f"{each.title}: fusionscope recipes {each.change}{_places(each)}"
    return each.change


def _places(each: Suggestion) -> str:
    """Return text such as *, at step.py:9 and 2 more lines*."""
    if not each.sources:
        return ""
    more = len(each.sources) - 1
    first = file_and_line(each.sources[0])
    return f", at {first}" + (f" and {plural(more, 'more line')}" if more else "")


def _what_came_of_it(each: Suggestion) -> str:
    if each.evidence == "example":
        words = [_times(each), f"launches {each.before.launches:,} → {each.after.launches:,}"]
        words.append(f"bytes {_sizes(each)}")
        return f"not tried here (--compile does); its example: {', '.join(filter(None, words))}"
    words = [
        _times(each),
        f"launches {each.before.launches:,} → {each.after.launches:,}",
        f"bytes {_sizes(each)}",
        f"fuses {plural(len(each.pairs), 'refused pair')}" if each.pairs else "",
    ]
    return f"{', '.join(filter(None, words))} ({each.evidence}{_doubt(each)})"


def _doubt(each: Suggestion) -> str:
    """Return why a change is not worth it whose time is estimated to be less."""
    saved = {"launches": each.saved_launches, "bytes": each.saved_bytes}
    more = [name for name, count in saved.items() if count < 0]
    is_estimate = each.evidence in ("replayed", "compiled")
    if not is_estimate or each.saved_us <= 0 or not more or max(saved.values()) > 0:
        return ""
    return f"; more {' and '.join(more)}, so the estimated time is not trusted"


def _sizes(each: Suggestion) -> str:
    return f"{size(each.before.bytes_moved)} → {size(each.after.bytes_moved)}"


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
    return f"{NOTHING}: {plural(tried, 'change')} tried (--all shows them)"


def _nothing_yet(suggestions: Suggestions) -> str:
    return _NOTHING_YET if suggestions.is_tried else _NOTHING_TRIED


def _notes(suggestions: Suggestions) -> Iterator[str]:
    yield from suggestions.notes
    if suggestions.untried:
        what = "more candidate" if suggestions.is_tried else "candidate"
        yield f"{plural(suggestions.untried, what)} would take too long to try: --all tries them"
