"""Versions of one program side by side, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.capture.capture import PROFILE
from fusionscope.words.section import Column, Line, Lines, Section, Table, command, line
from fusionscope.words.text import duration, size

if TYPE_CHECKING:
    from fusionscope.study.study import Profiled, Row, StudyResult
    from fusionscope.study.study import Table as SizeTable

_FIGURES = ("kernels", "launches", "bytes", "time", "speed-up", "compiling")
_COLUMNS = (
    Column("step", wraps=True),
    *(Column(title, is_number=True) for title in _FIGURES),
    Column("paper", wraps=True),
)


def sections_of(result: StudyResult) -> Iterator[Section]:
    """Yield a table for each device and size, and notes on the steps."""
    yield Section(title=result.study.title, is_heading=True)
    yield from tables_of(result)
    yield notes(result)


def tables_of(result: StudyResult) -> Iterator[Section]:
    """Yield a table for each device and size."""
    for table in result.tables:
        block = Table(columns=_COLUMNS, rows=tuple(_rows(result, table)), noun="step")
        yield Section(title=_heading(result, table), blocks=(block,))


def _heading(result: StudyResult, table: SizeTable) -> str:
    per = f", for each of {result.study.work}" if result.study.work > 1 else ""
    heading = f"{table.target}, size {table.size:,}{per}"
    if not table.not_run:
        return f"{heading}: run here"
    estimated = any(row.estimate is not None for row in table.rows)
    time = "; time estimated by the compiler's cost model" if estimated else ""
    return f"{heading}: not run, {table.not_run}{time}"


def _rows(result: StudyResult, table: SizeTable) -> Iterator[tuple[str, ...]]:
    """Yield a row for each step; launches, bytes and time are per unit of work."""
    work = result.study.work
    for row, step in zip(table.rows, result.study.steps, strict=True):
        figures = [""] * 3
        if row.kernels:
            relation = f"{row.relation} " if row.relation else ""
            figures = [
                f"{row.kernels:,}",
                f"{relation}{row.launches / work:,.2f}",
                f"{relation}{size(round(row.bytes_moved / work))}",
            ]
        compiling = "" if row.compile_s is None else f"{row.compile_s:.2f} s"
        yield row.step, *figures, _time(row, work), _speed_up(table, row), compiling, step.paper


def _time(row: Row, work: int) -> str:
    if row.race is not None:
        return f"{row.race.run_ns / 1000 / work:,.2f} µs"
    if row.estimate is None:
        return ""
    least = "≥ " if row.estimate.floor_launches else ""
    return f"{least}{row.estimate.microseconds / work:,.2f} µs"


def _speed_up(table: SizeTable, row: Row) -> str:
    speed_up = table.speed_up(row)
    return "" if speed_up is None else f"{'≥ ' if speed_up.is_least else ''}{speed_up.times:.2f}x"


def notes(result: StudyResult) -> Section:
    return Section(title="Notes", blocks=(Lines(tuple(_notes(result))),))


def _notes(result: StudyResult) -> Iterator[Line]:
    """Yield notes from the first table: what each step is, what is between the kernels that are
    left, and how to explain it.
    """
    for row, step in zip(result.tables[0].rows, result.study.steps, strict=True):
        yield line(f"{step.name}: {step.what}")
        if row.problem:
            yield line(f"    {row.problem}")
        for boundary in dict.fromkeys(row.boundaries):
            yield line(f"    nothing is fused across {boundary}")
        if (worst := row.refusal) is not None:
            pair = f"{worst.producer} -> {worst.consumer} {size(worst.bytes)}"
            yield line(f"    {pair}: {worst.rule}, {worst.title}")
        if row.profiled is not None:
            yield line(f"    {_profiled(row.profiled, result.study.work)}")
        if row.kernels:
            yield command(("fusionscope", "explain", str(row.dump), *_with_profile(row)))
    yield from (line(f"paper: {words}") for words in result.study.paper)


def _profiled(trace: Profiled, work: int) -> str:
    if trace.longest is None:
        return f"kernels were not measured: {trace.problem or 'the trace shows none'}"
    longest = trace.longest
    return (
        f"{duration(trace.kernels_us / work)} of {duration(trace.time_us / work)} in kernels, "
        f"the longest {longest.name}: {duration(longest.time_us / work)}"
    )


def _with_profile(row: Row) -> tuple[str, ...]:
    has_profile = row.profiled is not None and not row.profiled.problem
    return ("--show", f"profile={row.dump / PROFILE}") if has_profile else ()
