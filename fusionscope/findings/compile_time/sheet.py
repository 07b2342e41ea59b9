"""The compile time of a module by pass, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.findings.compile_time.facts import CompileTime, PassCost
from fusionscope.words.section import Column, Section, Table, spans
from fusionscope.words.text import duration, plural

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_TITLE = "Compile time"
_NAMED_PASSES = 2  # on the first screen
_SHORT_US = 500_000  # nobody asks why
_COLUMNS = (
    Column("share", is_number=True),
    Column("time", is_number=True),
    Column("pass", is_flexible=True),
    Column("runs"),
)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Return one line if it was long."""
    time = module.find(CompileTime)
    if time is None or time.total_us < _SHORT_US:
        return
    costs = time.passes[:_NAMED_PASSES]
    names = ", ".join(f"{cost.name} {_share(cost.own_us, time)}" for cost in costs)
    yield Section(title=_TITLE, summary=spans(f"{_total(time)}: {names}"), is_cut=True)


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Return the passes that take longest."""
    time = module.find(CompileTime)
    if time is None:
        return
    dump = f", {_share(time.dump_us, time)} of it spent on writing the dump"
    rows = tuple(
        (_share(cost.own_us, time), duration(cost.own_us), cost.name, _runs(cost))
        for cost in time.passes[:top]
    )
    hidden = len(time.passes) - len(rows)
    table = Table(columns=_COLUMNS, rows=rows, noun="pass", hidden=hidden)
    yield Section(title=_TITLE, summary=spans(f"{_total(time)}{dump}"), blocks=(table,))


def _total(time: CompileTime) -> str:
    runs = sum(cost.runs for cost in time.passes)
    return f"{duration(time.total_us)} in {plural(runs, 'pass')}"


def _runs(cost: PassCost) -> str:
    if cost.runs == 1:
        return "changed the module" if cost.changes else "changed nothing"
    changes = f"{cost.changes:,} changed" if cost.changes else "none changed"
    return f"{cost.runs:,} runs, {changes} the module"


def _share(microseconds: int, time: CompileTime) -> str:
    return f"{microseconds / time.total_us:.0%}" if time.total_us else "-"
