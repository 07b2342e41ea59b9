"""Data movement in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.findings.movements.facts import Movement
from fusionscope.words.section import Entry, Section, Tone, line, ranked, spans, strong
from fusionscope.words.text import duration, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts
    from fusionscope.facts.suggestions import Suggestions


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Return the costliest movements, and the suggestions that remove some of them."""
    if Movement.finding not in module.findings:
        return
    movements = module.find_all(Movement)
    groups = _group(movements)
    entries = [
        _entry(rank, group, module.suggestions) for rank, group in enumerate(groups[:top], 1)
    ]
    yield Section(
        title="Data movement",
        summary=spans(_summary(movements)),
        blocks=(ranked("movement", entries, len(groups), ("bytes", "time", "alike")),),
    )


@dataclass(frozen=True, slots=True)
class _Alike:
    """Movements of one shape, for one reason, from one line."""

    example: Movement
    kernels: tuple[str, ...]
    bytes_moved: int
    time_ns: float | None


def _entry(rank: int, group: _Alike, suggestions: Suggestions | None) -> Entry:
    movement = group.example
    place = f" at {movement.source}" if movement.source else ""
    shape = f"{movement.operation.opcode} {movement.operation.shape}{place}"
    count = len(group.kernels)
    return Entry(
        label=f"{rank}.",
        name=strong(movement.operation.name),
        figures=(
            size(group.bytes_moved),
            duration(group.time_ns / 1_000) if group.time_ns is not None else "",
            f"x{count:,} alike" if count > 1 else "",
        ),
        lines=(line(shape, Tone.QUIET), line(_why(group, suggestions))),
    )


def _summary(movements: Sequence[Movement]) -> str:
    alone = [movement for movement in movements if movement.is_alone]
    if not alone:
        return "no kernel only moves data"
    launches = sum({movement.kernel: movement.runs for movement in alone}.values())
    moved = size(sum(movement.bytes_moved for movement in alone))
    times = [movement.time_ns for movement in alone if movement.time_ns is not None]
    time = f", {duration(fsum(times) / 1_000)}" if len(times) == len(alone) else ""
    return f"{plural(launches, 'launch')} that compute nothing, {moved}{time}"


def _group(movements: Sequence[Movement]) -> list[_Alike]:
    """Return those that cost something or write a whole array for a part, the costliest first."""
    alike: dict[tuple[object, ...], list[Movement]] = defaultdict(list)
    for movement in movements:
        if movement.is_alone or movement.cause == "not-in-place":
            alike[_kind(movement)].append(movement)
    return sorted(map(_alike, alike.values()), key=lambda group: -group.bytes_moved)


def _kind(movement: Movement) -> tuple[object, ...]:
    operation, served = movement.operation, movement.served
    return (
        operation.opcode, operation.shape, movement.made_by, movement.cause,
        served.opcode if served is not None else None, movement.source,
    )  # fmt: skip


def _alike(movements: Sequence[Movement]) -> _Alike:
    times = [movement.time_ns for movement in movements if movement.time_ns is not None]
    return _Alike(
        movements[0],
        tuple(movement.kernel for movement in movements),
        sum(movement.bytes_moved for movement in movements),
        fsum(times) if len(times) == len(movements) else None,
    )


def _why(group: _Alike, suggestions: Suggestions | None) -> str:
    """Return the cause, and the suggestions that remove these movements, each with their number if
    it does not remove all.
    """
    movement = group.example
    is_named = movement.made_by is None or movement.made_by in movement.text
    made_by = "" if is_named else f" ({movement.made_by})"
    removals = Counter(
        number
        for kernel in group.kernels
        for number in (suggestions.removing(kernel) if suggestions is not None else ())
    )
    total = len(group.kernels)
    tries = ", ".join(
        str(number) if count == total else f"{number} ({count} of {total})"
        for number, count in sorted(removals.items())
    )
    gone = f"; gone with try {tries}" if tries else ""
    return f"{movement.cause}: {movement.text}{made_by}{gone}"
