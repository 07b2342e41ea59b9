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


def print_surveyed(result: Surveyed, console: Console) -> None:
    from rich.text import Text

    new = result.dumps - result.earlier
    console.print(
        Text(
            safe(
                f"{result.directory}: {plural(new, 'dump')} with "
                f"{plural(result.modules, 'module')}; "
                f"{plural(result.analysed, 'different module')} analysed, in {result.seconds:.1f} s"
            )
        ),
        soft_wrap=True,
    )
    if result.earlier:
        console.print(Text(f"  {plural(result.earlier, 'dump')} done before"))
    if result.unreadable:
        console.print(Text(f"  {len(result.unreadable):,} unreadable (table unreadable):"))
    for message in result.unreadable[:_SHOWN]:
        console.print(Text(f"    {safe(message)}", style="dim"), soft_wrap=True)
    if len(result.unreadable) > _SHOWN:
        console.print(Text(f"    … and {len(result.unreadable) - _SHOWN:,} more", style="dim"))
    console.print(Text(safe(f"  Next: fusionscope survey report {result.directory}"), style="dim"))


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
                rule.reason,
                size(rule.refused_bytes),
                f"{rule.pairs:,}",
                f"{rule.dumps:,}",
                f"{rule.contents:,}",
                rule.since or "-",
                rule.title or "",
            )
            for rule in fleet.rules
        ],
        ends_in_text=True,
    )
    for heading, lines in (("Refusals by scope", fleet.scopes), ("Refusals by file", fleet.files)):
        yield Grid(
            heading,
            (heading.rpartition(" ")[2], "bytes", "pairs", "dumps", "mostly by"),
            [
                (
                    line.place,
                    size(line.refused_bytes),
                    f"{line.pairs:,}",
                    f"{line.dumps:,}",
                    line.reason,
                )
                for line in lines
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
                version.jaxlib,
                version.device,
                f"{version.dumps:,}",
                f"{version.modules:,}",
                _share(version.not_fused, version.pairs),
                size(version.refused_bytes),
                _share(version.refused_bytes, version.bytes_moved),
                _share(version.plans_agreeing, version.plans),
            )
            for version in fleet.versions
        ],
        texts=2,
    )
    yield Grid(
        "What to try",
        ("change", "time", "bytes", "launches", "dumps", "modules", "evidence"),
        [
            (
                suggestion.change,
                or_dash(suggestion.time_saved_us, duration),
                or_dash(suggestion.bytes_saved, size),
                or_dash(suggestion.launches_saved, lambda count: f"{count:,}"),
                f"{suggestion.dumps:,}",
                f"{suggestion.contents:,}",
                suggestion.evidence,
            )
            for suggestion in fleet.suggestions
        ],
        ends_in_text=True,
        empty="nothing was tried, or nothing helps: fusionscope survey … --try",
    )
    identical = sum(agreement.identical or 0 for agreement in fleet.agreement)
    plans = sum(agreement.runs for agreement in fleet.agreement if agreement.identical is not None)
    yield Grid(
        f"Agreement of the replay: {_share(identical, plans)} of {plural(plans, 'plan')}",
        ("pass", "rules", "runs", "identical", "pairs", "decisions"),
        [
            (
                agreement.pass_name,
                agreement.rules,
                f"{agreement.runs:,}",
                _share(agreement.identical, agreement.runs),
                _share(agreement.pairs_agreeing, agreement.pairs),
                _share(agreement.decisions_agreeing, agreement.decisions),
            )
            for agreement in fleet.agreement[: fleet.top]
        ],
        texts=2,
    )
    worse = fleet.worse
    if worse is not None:
        yield Grid(
            f"Worse on {worse.after} than on {worse.before}: {worse.worse:,} of "
            f"{plural(worse.programs, 'program')}",
            ("program", "device", "jaxlib", "refused", "time", "launches", "mostly by"),
            [_worse_cells(line) for line in worse.lines],
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


def _more(figure: Figure, format_figure: Callable[[Figure], str]) -> str:
    """Return a difference with its sign; a dash if it is zero."""
    if not figure:
        return "-"
    return f"{'+' if figure > 0 else '-'}{format_figure(abs(figure))}"


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
        table.add_row(*(Text(safe(cell_text)) for cell_text in cells))
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
        yield _line([cell(cell_text) for cell_text in cells])


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
        is_number = any(value in kind for value in _NUMBERS)
        table.add_column(
            Text(safe(name)),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for row in answer.rows:
        table.add_row(*(Text(safe(_word(value))) for value in row))
    console.print(table)
    console.print(Text(plural(len(answer.rows), "row"), style="dim"))


def answer_to_markdown(answer: Answer) -> str:
    titles = tuple(map(cell, answer.columns))
    is_number = [any(value in kind for value in _NUMBERS) for kind in answer.types]
    lines = [_line(titles), _line(["--:" if value else "---" for value in is_number])]
    lines += [_line([cell(_word(value)) for value in row]) for row in answer.rows]
    return "\n".join(lines) + "\n"
