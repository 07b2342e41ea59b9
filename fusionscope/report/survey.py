"""Surveys on a terminal and as Markdown: what a run did, what a fleet says, and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionscope.words.text import Figure, cell, duration, or_dash, plural, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.survey.fleet import Fleet, WorseLine
    from fusionscope.survey.questions import Answer
    from fusionscope.survey.survey import Surveyed

_SHOWN = 5  # things that could not be read


@dataclass(frozen=True, slots=True)
class Grid:
    """One table in words. The first ``texts`` columns, and the last if it ``ends_in_text``, are
    texts, the others figures.
    """

    heading: str
    titles: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    ends_in_text: bool = False
    empty: str = "none"

    def is_text(self, column: int) -> bool:
        return column < self.texts or (self.ends_in_text and column == len(self.titles) - 1)


def print_surveyed(done: Surveyed, console: Console) -> None:
    from rich.text import Text

    new = done.dumps - done.earlier
    console.print(
        Text(
            safe(
                f"{done.directory}: {plural(new, 'dump')} with {plural(done.modules, 'module')}; "
                f"{plural(done.analysed, 'different module')} analysed, in {done.seconds:.1f} s"
            )
        ),
        soft_wrap=True,
    )
    if done.earlier:
        console.print(Text(f"  {plural(done.earlier, 'dump')} done before"))
    if done.unreadable:
        console.print(Text(f"  {len(done.unreadable):,} unreadable (table unreadable):"))
    for each in done.unreadable[:_SHOWN]:
        console.print(Text(f"    {safe(each)}", style="dim"), soft_wrap=True)
    if len(done.unreadable) > _SHOWN:
        console.print(Text(f"    … and {len(done.unreadable) - _SHOWN:,} more", style="dim"))
    console.print(Text(safe(f"  Next: fusionscope survey report {done.directory}"), style="dim"))


def headline(fleet: Fleet) -> str:
    counts = fleet.counts
    days = counts.first_day or "no day"
    if counts.last_day != counts.first_day:
        days = f"{counts.first_day} to {counts.last_day}"
    return (
        f"{plural(counts.dumps, 'dump')} of {days}, {plural(counts.modules, 'module')} "
        f"({counts.contents:,} different), {plural(counts.pairs, 'pair')}: "
        f"{_share(counts.not_fused, counts.pairs)} not fused, "
        f"{size(counts.refused_bytes)} refused; {counts.unreadable:,} unreadable"
    )


def grids(fleet: Fleet) -> Iterator[Grid]:
    """Yield the tables of a fleet."""
    yield Grid(
        "Refusals by rule",
        ("rule", "bytes", "pairs", "dumps", "modules", "since", "because"),
        [
            (
                each.reason,
                size(each.refused_bytes),
                f"{each.pairs:,}",
                f"{each.dumps:,}",
                f"{each.contents:,}",
                each.since or "-",
                each.title or "",
            )
            for each in fleet.rules
        ],
        ends_in_text=True,
    )
    for heading, lines in (("Refusals by scope", fleet.scopes), ("Refusals by file", fleet.files)):
        yield Grid(
            heading,
            (heading.rpartition(" ")[2], "bytes", "pairs", "dumps", "mostly by"),
            [
                (
                    each.place,
                    size(each.refused_bytes),
                    f"{each.pairs:,}",
                    f"{each.dumps:,}",
                    each.reason,
                )
                for each in lines
            ],
            ends_in_text=True,
        )
    yield Grid(
        "Versions and devices",
        (
            "jaxlib",
            "device",
            "dumps",
            "modules",
            "not fused",
            "refused",
            "of moved",
            "plans",
        ),
        [
            (
                each.jaxlib,
                each.device,
                f"{each.dumps:,}",
                f"{each.modules:,}",
                _share(each.not_fused, each.pairs),
                size(each.refused_bytes),
                _share(each.refused_bytes, each.bytes_moved),
                _share(each.plans_agreeing, each.plans),
            )
            for each in fleet.versions
        ],
        texts=2,
    )
    yield Grid(
        "What to try",
        ("change", "time", "bytes", "launches", "dumps", "modules", "evidence"),
        [
            (
                each.change,
                or_dash(each.time_saved_us, duration),
                or_dash(each.bytes_saved, size),
                or_dash(each.launches_saved, lambda count: f"{count:,}"),
                f"{each.dumps:,}",
                f"{each.contents:,}",
                each.evidence,
            )
            for each in fleet.suggestions
        ],
        ends_in_text=True,
        empty="nothing was tried, or nothing helps: fusionscope survey … --try",
    )
    identical = sum(each.identical or 0 for each in fleet.agreement)
    plans = sum(each.runs for each in fleet.agreement if each.identical is not None)
    yield Grid(
        f"Agreement of the replay: {_share(identical, plans)} of {plural(plans, 'plan')}",
        ("pass", "rules", "runs", "identical", "pairs", "decisions"),
        [
            (
                each.pass_name,
                each.rules,
                f"{each.runs:,}",
                _share(each.identical, each.runs),
                _share(each.pairs_agreeing, each.pairs),
                _share(each.decisions_agreeing, each.decisions),
            )
            for each in fleet.agreement[: fleet.top]
        ],
        texts=2,
    )
    worse = fleet.worse
    if worse is not None:
        yield Grid(
            f"Worse on {worse.after} than on {worse.before}: {worse.worse:,} of "
            f"{plural(worse.programs, 'program')}",
            ("program", "device", "jaxlib", "refused", "time", "launches", "mostly by"),
            [_worse_cells(each) for each in worse.lines],
            texts=3,
            ends_in_text=True,
        )


def _worse_cells(line: WorseLine) -> tuple[str, ...]:
    time = "-"
    if line.time_us is not None and line.time_before_us is not None:
        time = _more(line.time_us - line.time_before_us, duration)
    return (
        line.program,
        line.device,
        _change(line.jaxlib_before, line.jaxlib),
        _more(round(line.refused) - round(line.refused_before), size),
        time,
        _change(f"{line.launches_before:,.0f}", f"{line.launches:,.0f}"),
        line.reason or "-",
    )


def _more(figure: Figure, written: Callable[[Figure], str]) -> str:
    """Return a difference with its sign; a dash if it is zero."""
    if not figure:
        return "-"
    return f"{'+' if figure > 0 else '-'}{written(abs(figure))}"


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _share(part: int | None, whole: int) -> str:
    """Return per cent, rounded down so that 100% is all."""
    return f"{1000 * part // whole / 10:g}%" if whole and part is not None else "-"


def print_fleet(fleet: Fleet, console: Console) -> None:
    from rich.text import Text

    console.print(Text(safe(headline(fleet)), style="bold"))
    for grid in grids(fleet):
        console.print()
        console.print(Text(safe(grid.heading), style="bold"))
        if grid.rows:
            _print_grid(grid, console)
        else:
            console.print(Text(f"  {grid.empty}", style="dim"))


def _print_grid(grid: Grid, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(grid.titles):
        is_text = grid.is_text(column)
        table.add_column(
            title,
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold" if is_text else "ellipsis",
        )
    for cells in grid.rows:
        table.add_row(*(Text(safe(each)) for each in cells))
    console.print(table)


def to_markdown(fleet: Fleet) -> str:
    lines = [f"# {cell(fleet.directory)}", "", cell(headline(fleet)), ""]
    for grid in grids(fleet):
        lines += [f"## {cell(grid.heading)}", ""]
        lines += [*_markdown(grid), ""] if grid.rows else [f"{grid.empty}", ""]
    return "\n".join(lines)


def _markdown(grid: Grid) -> Iterator[str]:
    yield _line(grid.titles)
    yield _line(["---" if grid.is_text(n) else "--:" for n in range(len(grid.titles))])
    for cells in grid.rows:
        yield _line([cell(each) for each in cells])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")


def _word(value: Any) -> str:
    return "" if value is None else str(value)


def print_answer(answer: Answer, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, kind in zip(answer.columns, answer.types, strict=True):
        is_number = any(each in kind for each in _NUMBERS)
        table.add_column(
            Text(safe(name)),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for row in answer.rows:
        table.add_row(*(Text(safe(_word(each))) for each in row))
    console.print(table)
    console.print(Text(plural(len(answer.rows), "row"), style="dim"))


def answer_to_markdown(answer: Answer) -> str:
    titles = tuple(map(cell, answer.columns))
    is_number = [any(each in kind for each in _NUMBERS) for kind in answer.types]
    lines = [_line(titles), _line(["--:" if each else "---" for each in is_number])]
    lines += [_line([cell(_word(each)) for each in row]) for row in answer.rows]
    return "\n".join(lines) + "\n"
