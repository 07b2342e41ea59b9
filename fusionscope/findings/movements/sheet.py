"""Data movement as Markdown and on a terminal: a part of an explanation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, code, duration, plural, print_hidden, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import Movement
    from fusionscope.findings.suggestions.facts import Suggestions

_TITLE = "Data movement"


@dataclass(frozen=True, slots=True)
class _Alike:
    """Return movements of one shape, for one reason, from one line."""

    example: Movement
    kernels: tuple[str, ...]
    bytes_moved: int
    time_ns: float | None

    @property
    def count(self) -> int:
        return len(self.kernels)


def to_markdown(
    movements: Sequence[Movement] | None, suggestions: Suggestions | None, top: int | None
) -> Iterator[str]:
    """Yield the lines of a table; ``suggestions`` may remove some of the movements."""
    if movements is None:
        return
    yield f"{_TITLE}: {_summary(movements)}.\n"
    groups = _group(movements)
    if not groups:
        return
    yield "| operation | count | bytes | time | why | source |"
    yield "|---|--:|--:|--:|---|---|"
    for group in groups[:top]:
        example = group.example
        columns = (
            f"{code(example.operation.name)} {cell(example.operation.shape)}",
            f"{group.count:,}",
            size(group.bytes_moved),
            _time(group.time_ns),
            cell(_why(group, suggestions)),
            cell(example.source or ""),
        )
        yield f"| {' | '.join(columns)} |"
    yield ""


def print_movements(
    movements: Sequence[Movement] | None,
    suggestions: Suggestions | None,
    console: Console,
    *,
    top: int | None,
) -> None:
    """Print them to a terminal; ``top`` limits the list."""
    from rich.padding import Padding
    from rich.text import Text

    if movements is None:
        return
    console.print(Text(f"\n  {_TITLE}: {_summary(movements)}", style="bold"))
    groups = _group(movements)
    for rank, group in enumerate(groups[:top], 1):
        example = group.example
        line = Text(f"  {rank}. ")
        line.append(safe(example.operation.name), style="bold")
        line.append(f"  {size(group.bytes_moved)}  {_time(group.time_ns)}".rstrip())
        line.append(f"  x{group.count:,} alike" if group.count > 1 else "")
        console.print(line)
        place = f" at {example.source}" if example.source else ""
        for text, style in (
            (f"{example.operation.opcode} {example.operation.shape}{place}", "dim"),
            (_why(group, suggestions), ""),
        ):
            console.print(Padding(Text(safe(text), style=style), (0, 0, 0, 5)))
    print_hidden(console, 2, len(groups), top, "movement")


def _summary(movements: Sequence[Movement]) -> str:
    alone = [each for each in movements if each.is_alone]
    if not alone:
        return "no kernel only moves data"
    launches = sum({each.kernel: each.runs for each in alone}.values())
    moved = size(sum(each.bytes_moved for each in alone))
    times = [each.time_ns for each in alone if each.time_ns is not None]
    time = f", {duration(fsum(times) / 1_000)}" if len(times) == len(alone) else ""
    return f"{plural(launches, 'launch')} that compute nothing, {moved}{time}"


def _group(movements: Sequence[Movement]) -> list[_Alike]:
    """Return those that cost something or write a whole array for a part, the costliest first."""
    alike: dict[tuple[object, ...], list[Movement]] = defaultdict(list)
    for each in movements:
        if each.is_alone or each.cause == "not-in-place":
            operation = each.operation
            served = each.served.opcode if each.served is not None else None
            key = operation.opcode, operation.shape, each.made_by, each.cause, served, each.source
            alike[key].append(each)
    groups: list[_Alike] = []
    for own in alike.values():
        times = [each.time_ns for each in own if each.time_ns is not None]
        time = fsum(times) if len(times) == len(own) else None
        kernels = tuple(each.kernel for each in own)
        groups.append(_Alike(own[0], kernels, sum(each.bytes_moved for each in own), time))
    return sorted(groups, key=lambda group: -group.bytes_moved)


def _why(group: _Alike, suggestions: Suggestions | None) -> str:
    """Return the cause, and the suggestions that remove these movements, each with their number if
    it does not remove all.
    """
    movement = group.example
    made_by = movement.made_by
    named = f" ({made_by})" if made_by is not None and made_by not in movement.text else ""
    found = suggestions.removing if suggestions is not None else lambda _: ()
    removing = Counter(number for kernel in group.kernels for number in found(kernel))
    tries = (
        str(number) if count == group.count else f"{number} ({count} of {group.count})"
        for number, count in sorted(removing.items())
    )
    told = f"; gone with try {', '.join(tries)}" if removing else ""
    return f"{movement.cause}: {movement.text}{named}{told}"


def _time(nanoseconds: float | None) -> str:
    return duration(nanoseconds / 1_000) if nanoseconds is not None else ""
