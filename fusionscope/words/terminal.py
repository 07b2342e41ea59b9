"""Renders sections on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING

from fusionscope.words.section import (
    Block,
    Column,
    Entries,
    Entry,
    Line,
    Lines,
    Plot,
    Section,
    Span,
    Table,
    Tone,
    as_span,
    spans,
)
from fusionscope.words.text import command_lines, hidden_entries, safe, shorten, size, squeeze

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.QUIET: "dim",
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.HINT: "cyan",
    Tone.WARNING: "yellow",
}
_GAP = "  "
_INDENT = 2
_LEAST_WIDTH = 12  # of a flexible column, or of a span that is squeezed
_HEIGHT = 8  # lines of a plot
_AXIS = 8  # characters


def print_sections(sections: Iterable[Section], console: Console) -> None:
    """Print sections with an empty line between them."""
    for place, section in enumerate(sections):
        if place:
            console.print()
        _print_title(section, console)
        indent = 0 if section.is_heading and not section.title else _INDENT
        for block in section.blocks:
            _print_block(block, console, indent)


def _print_title(section: Section, console: Console) -> None:
    if not section.title:
        return
    title = spans((section.title, Tone.STRONG), _GAP if section.summary else "")
    _print_line(
        Line(spans=(*title, *section.summary), is_cut=section.is_cut),
        console,
        0 if section.is_heading else _INDENT,
    )


def _print_block(block: Block, console: Console, indent: int = _INDENT) -> None:
    match block:
        case Lines():
            for line in block.lines:
                _print_line(line, console, indent)
        case Entries():
            _print_entries(block.entries, console, indent)
            _print_hidden(block.hidden, block.noun, console, indent)
        case Table():
            _print_table(block, console, indent)
            _print_hidden(block.hidden, block.noun, console, indent)
        case Plot():
            _print_plot(block, console, indent)


def _styled(words: Sequence[Span]) -> Text:
    from rich.text import Text

    return Text.assemble(*((safe(span.text), _STYLES[span.tone]) for span in words))


def _print_line(line: Line, console: Console, indent: int, label: str = "") -> None:
    """Print a line; a label stands in the indent."""
    from rich.text import Text

    width = max(console.width - indent, 1)
    if line.is_command:
        texts = [_styled((Span(text, line.spans[0].tone),)) for text in _command(line, width)]
    elif line.is_cut:
        texts = [_styled(_cut(line.spans, width))]
    else:
        texts = list(_styled(line.spans).wrap(console, width))
    for text in texts:
        begin = Text(f"{label:<{indent}}")
        # A terminal may break the line of a command; a line break in a word cannot be copied.
        console.print(begin.append_text(text), soft_wrap=line.is_command, no_wrap=True)
        label = ""


def _command(line: Line, width: int) -> list[str]:
    return command_lines([span.text for span in line.spans], width)


def _cut(words: Sequence[Span], width: int) -> list[Span]:
    """Return spans that fit into ``width``: what is flexible gets what the others leave."""
    room = max(width - sum(len(span.text) for span in words if not span.is_flexible), _LEAST_WIDTH)
    fitting: list[Span] = []
    for span in words:
        text = squeeze(span.text, room) if span.is_flexible else span.text
        fitting.append(Span(shorten(text, max(width, 0)), span.tone))
        width -= len(text)
    return fitting


def _print_entries(entries: Sequence[Entry], console: Console, indent: int) -> None:
    width = max((len(entry.label) for entry in entries), default=0)
    gap = 1 if all(entry.label.endswith(".") for entry in entries) else len(_GAP)  # after a rank
    inner = indent + width + gap
    for entry in entries:
        label = f"{' ' * indent}{entry.label:>{width}}"
        lines = (
            entry.lines if not entry.name else (_head(entry, console.width - inner), *entry.lines)
        )
        for line in lines:
            _print_line(line, console, inner, label)
            label = ""


def _head(entry: Entry, width: int) -> Line:
    """Return the name and the figures of an entry."""
    figures = "".join(f"{_GAP}{figure}" for figure in entry.figures if figure)
    name = entry.name
    if entry.is_cut:
        text = squeeze("".join(span.text for span in name), width - len(figures))
        name = (Span(text),)
    return Line(spans=(*name, Span(figures)))


def _print_table(table: Table, console: Console, indent: int) -> None:
    """Print the figures in full; the flexible column gets the remaining width."""
    columns = enumerate(table.columns)
    head = [Span(column.title, Tone.QUIET if place else Tone.STRONG) for place, column in columns]
    rows = [[as_span(cell) for cell in row] for row in table.rows]
    rows = [head, *rows] if table.has_head else rows
    if not rows:
        return
    widths = _widths(table, rows, console.width - indent)
    for row in rows:
        cells = map(_cell, row, widths, table.columns)
        blanks = [Span(" " * width) for width in widths]
        for parts in _side_by_side([*cells], blanks):
            _print_row(parts, console, indent)


def _side_by_side(cells: Sequence[Sequence[Span]], blanks: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield the lines of a row whose cells have several."""
    for place in range(max(map(len, cells))):
        yield [
            lines[place] if place < len(lines) else blank
            for lines, blank in zip(cells, blanks, strict=True)
        ]


def _widths(table: Table, rows: Sequence[Sequence[Span]], space: int) -> list[int]:
    """Return the widths of columns: the widest of the flexible ones shrink first."""
    widths = [max(len(row[place].text) for row in rows) for place in range(len(table.columns))]
    flexible = [
        place for place, column in enumerate(table.columns) if column.is_flexible or column.wraps
    ]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - space
    while excess > 0 and flexible:
        widest = max(flexible, key=widths.__getitem__)
        if widths[widest] <= _LEAST_WIDTH:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _cell(cell: Span, width: int, column: Column) -> list[Span]:
    """Return the lines of a cell, of this width; leading spaces are kept."""
    text = safe(cell.text)
    blank = len(text) - len(text.lstrip())
    texts = [f"{' ' * blank}{squeeze(text.lstrip(), max(width - blank, 1))}"]
    if column.wraps:
        texts = wrap(text, max(width, 1), break_on_hyphens=False) or [""]
    return [
        Span(part.rjust(width) if column.is_number else part.ljust(width), cell.tone)
        for part in texts
    ]


def _print_row(cells: Sequence[Span], console: Console, indent: int) -> None:
    spans = [Span(" " * indent)]
    for cell in cells:
        spans += [cell, Span(_GAP)]
    text = _styled(spans)
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"
    console.print(text)


def _print_plot(plot: Plot, console: Console, indent: int) -> None:
    """Print a bar for each column, as high as the largest of its numbers."""
    columns = min(console.width - indent - _AXIS - 1, len(plot.bytes))
    most = max(plot.bytes, default=0)
    if columns < 1 or not most:
        return
    bounds = [place * len(plot.bytes) // columns for place in range(columns + 1)]
    tops = [max(plot.bytes[begin:end]) * _HEIGHT / most for begin, end in pairwise(bounds)]
    for row in range(_HEIGHT, 0, -1):
        bars = "".join("█" if top > row - 0.5 else "▄" if top > row - 1 else " " for top in tops)
        text = f"{size(most * row // _HEIGHT):>{_AXIS}} {bars.rstrip()}"
        _print_line(Line(spans=(Span(text, Tone.QUIET),), is_cut=True), console, indent)
    caption = f"{'':>{_AXIS}} {plot.caption:^{columns}}".rstrip()
    _print_line(Line(spans=(Span(caption, Tone.QUIET),), is_cut=True), console, indent)


def _print_hidden(hidden: int, noun: str, console: Console, indent: int) -> None:
    if hidden > 0:
        words = Span(hidden_entries(hidden, noun), Tone.QUIET)
        _print_line(Line(spans=(words,)), console, indent)
