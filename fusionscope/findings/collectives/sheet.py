"""Collectives in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.collectives.facts import Collective, CollectiveCause, Sharding
from fusionscope.words.section import Entry, Line, Section, Tone, line, ranked, spans, strong
from fusionscope.words.text import duration, file_and_line, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_MESH = re.compile(r"\{mesh\[[^]]*\], (.*)\}")
_MOST_NAMES = 3


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the collectives, those first that send most."""
    yield from _section(module.find_all(Collective), top)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the reshardings that send most."""
    collectives = module.find_all(Collective)
    if any(collective.cause is CollectiveCause.RESHARDING for collective in collectives):
        yield from _section(collectives, 2)


def _section(collectives: Sequence[Collective], top: int | None) -> Iterator[Section]:
    if not collectives:
        return
    ordered = sorted(
        collectives,
        key=lambda collective: (
            collective.cause is not CollectiveCause.RESHARDING,
            -collective.bytes * collective.runs,
        ),
    )
    entries = [_entry(rank, collective) for rank, collective in enumerate(ordered[:top], 1)]
    yield Section(
        title="Collectives",
        summary=spans(_summary(collectives)),
        blocks=(ranked("collective", entries, len(ordered), ("bytes", "kind", "runs")),),
    )


def _summary(collectives: Sequence[Collective]) -> str:
    resharded = [
        collective for collective in collectives if collective.cause is CollectiveCause.RESHARDING
    ]
    places = {
        (collective.before.operation, collective.after.operation)
        for collective in resharded
        if collective.before and collective.after
    }
    why = f"; {_sent(resharded)} for {plural(len(places), 'resharding')}" if places else ""
    runs = plural(sum(collective.runs for collective in collectives), "collective")
    return f"{runs}, {_sent(collectives)} on each device{why}"


def _sent(collectives: Sequence[Collective]) -> str:
    return size(sum(collective.bytes * collective.runs for collective in collectives))


def _entry(rank: int, collective: Collective) -> Entry:
    return Entry(
        label=f"{rank}.",
        name=strong(collective.name),
        figures=(
            size(collective.bytes),
            collective.kind,
            f"x{collective.runs:,}" if collective.runs > 1 else "",
        ),
        lines=tuple(_lines(collective)),
    )


def _lines(collective: Collective) -> Iterator[Line]:
    before, after = collective.before, collective.after
    place = file_and_line(collective.source) or "an unknown line"
    match collective.cause:
        case CollectiveCause.PROGRAM:
            yield line(f"called by the program at {place}")
        case CollectiveCause.SUM:
            combined = after.operation.name if after is not None else "an operation"
            yield line(f"combines the parts of {combined} at {place}")
            if before is not None:
                yield line(_split(before))
        case CollectiveCause.NEIGHBOURS:
            yield line(f"reads from neighbours at {place}")
        case CollectiveCause.WHOLE if before is not None:
            yield line(f"needs all of a dimension that is split, at {place}", Tone.BAD)
            yield line(_split(before))
        case CollectiveCause.RESHARDING if before is not None and after is not None:
            yield line(f"resharding for {after.operation.name} at {place}", Tone.BAD)
            yield line(_split(before))
            yield line(_split(after))
        case _:
            yield line(f"origin unknown, at {place}")
    yield line(_beside(collective), Tone.QUIET)


def _split(sharding: Sharding) -> str:
    match = _MESH.fullmatch(sharding.text)
    text = match[1] if match is not None else sharding.text
    setter = f", as set by {file_and_line(sharding.set_by)}" if sharding.set_by else ""
    return f"{sharding.operation.name} is {text}{setter}"


def _beside(collective: Collective) -> str:
    names = collective.beside
    if not names:
        return "nothing runs meanwhile"
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    time = "" if collective.beside_ns is None else f", {duration(collective.beside_ns / 1_000)}"
    return f"meanwhile: {', '.join(names[:_MOST_NAMES])}{more}{time}"
