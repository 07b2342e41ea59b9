"""Versions of one program side by side, as JSON and on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.capture.capture import PROFILE
from fusionscope.words.text import cell, duration, safe, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from fusionscope.study.study import Profiled, Row, StudyResult
    from fusionscope.study.study import Table as SizeTable

_TITLES = ("step", "kernels", "launches", "bytes", "time", "speed-up", "compiling", "paper")


@dataclass(frozen=True, slots=True)
class Grid:
    """One table in words."""

    heading: str
    titles: tuple[str, ...]
    rows: list[list[str]]


def grids(result: StudyResult) -> list[Grid]:
    return [
        Grid(_heading(result, table), _TITLES, _cells(result, table)) for table in result.tables
    ]


def print_study(result: StudyResult, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(safe(result.study.title), style="bold"))
    for grid in grids(result):
        console.print()
        console.print(Text(grid.heading, style="bold"))
        table = Table(box=None, pad_edge=False)
        for title in grid.titles:
            is_words = title in ("step", "paper")
            table.add_column(title, justify="left" if is_words else "right", no_wrap=not is_words)
        for cells in grid.rows:
            table.add_row(*cells)
        console.print(table)
    console.print()
    for words in notes_on(result):
        console.print(Text(safe(words)), soft_wrap=True)


def to_markdown(result: StudyResult) -> str:
    lines = [f"# {cell(result.study.title)}", ""]
    for grid in grids(result):
        lines += [f"## {cell(grid.heading)}", "", _line(grid.titles)]
        lines.append(_line(["---", *["--:"] * (len(grid.titles) - 2), "---"]))
        lines += [_line([cell(cell_text) for cell_text in cells]) for cells in grid.rows]
        lines.append("")
    lines += [f"- {cell(words.strip())}" for words in notes_on(result)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _heading(result: StudyResult, table: SizeTable) -> str:
    per = f", for each of {result.study.work}" if result.study.work > 1 else ""
    heading = f"{table.target}, size {table.size:,}{per}"
    if not table.not_run:
        return f"{heading}: run here"
    estimated = any(row.estimate is not None for row in table.rows)
    time = "; time estimated by the compiler's cost model" if estimated else ""
    return safe(f"{heading}: not run, {table.not_run}{time}")


def _cells(result: StudyResult, table: SizeTable) -> list[list[str]]:
    """Return a row for each step; launches, bytes and time are per unit of work."""
    work = result.study.work
    lines = []
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
        end = [_time(row, work), _speed_up(table, row), compiling, safe(step.paper)]
        lines.append([safe(row.step), *figures, *end])
    return lines


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


def notes_on(result: StudyResult) -> list[str]:
    """Return notes from the first table: what each step is, what is between the kernels that are
    left, and how to explain it.
    """
    notes = []
    for row, step in zip(result.tables[0].rows, result.study.steps, strict=True):
        notes.append(f"{step.name}: {step.what}")
        if row.problem:
            notes.append(f"    {row.problem}")
        for boundary in dict.fromkeys(row.boundaries):
            notes.append(f"    nothing is fused across {boundary}")
        if row.refusal is not None:
            worst = row.refusal
            notes.append(
                f"    {worst.producer} -> {worst.consumer} {size(worst.bytes)}: "
                f"{worst.rule}, {worst.title}"
            )
        if row.profiled is not None:
            notes.append(f"    {_profiled(row.profiled, result.study.work)}")
        if row.kernels:
            notes.append(f"    fusionscope explain {row.dump}{_with_profile(row)}")
    return [*notes, *(f"paper: {words}" for words in result.study.paper)]


def _profiled(trace: Profiled, work: int) -> str:
    if trace.longest is None:
        return f"kernels were not measured: {trace.problem or 'the trace shows none'}"
    longest = trace.longest
    return (
        f"{duration(trace.kernels_us / work)} of {duration(trace.time_us / work)} in kernels, "
        f"the longest {longest.name}: {duration(longest.time_us / work)}"
    )


def _with_profile(row: Row) -> str:
    has_profile = row.profiled is not None and not row.profiled.problem
    return f" --show profile={row.dump / PROFILE}" if has_profile else ""
