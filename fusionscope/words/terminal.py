"""Renders sections on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.section import Block, Entries, Entry, Line, Lines, Section, Span, Table, Tone
from fusionscope.words.text import command_lines, plural, safe, shorten, squeeze

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
_LEAST_WIDTH = 16  # of a flexible column


def print_sections(sections: Iterable[Section], console: Console, indent: int = 2) -> None:
    """Print sections, each after an empty line if it has a title."""
    for section in sections:
        _print_title(section, console, indent)
        for block in section.blocks:
            print_block(block, console, indent)


def _print_title(section: Section, console: Console, indent: int) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not section.title:
        return
    title = Text.assemble((safe(section.title), "bold"), _GAP, _styled(section.summary))
    title.rstrip()
    console.print(Padding(title, (1, 0, 0, indent)))


def print_block(block: Block, console: Console, indent: int = 2) -> None:
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


def _styled(spans: Sequence[Span]) -> Text:
    from rich.text import Text

    return Text.assemble(*((safe(span.text), _STYLES[span.tone]) for span in spans))


def _print_line(line: Line, console: Console, indent: int, label: str = "") -> None:
    """Print a line, the first one after a label."""
    from rich.padding import Padding
    from rich.text import Text

    if line.is_command:
        _print_command(line, console, indent)
    elif line.is_cut:
        text = Text(shorten(line.text, console.width - indent), style=_STYLES[line.spans[0].tone])
        console.print(Padding(text, (0, 0, 0, indent)), no_wrap=True)
    else:
        console.print(Padding(_styled(line.spans), (0, 0, 0, indent)))


def _print_command(line: Line, console: Console, indent: int) -> None:
    """A terminal may break a line of a command; a line break in a word cannot be copied."""
    from rich.text import Text

    words = [span.text for span in line.spans]
    for text in command_lines(words, console.width - indent):
        style = _STYLES[line.spans[0].tone]
        console.print(Text(f"{' ' * indent}{text}", style=style), soft_wrap=True)


def _print_entries(entries: Sequence[Entry], console: Console, indent: int) -> None:
    from rich.text import Text

    width = max((len(entry.label) for entry in entries), default=0)
    inner = indent + width + 1
    for entry in entries:
        figures = "".join(f"{_GAP}{safe(figure)}" for figure in entry.figures if figure)
        name = _styled(entry.name)
        if entry.is_cut:
            name = Text(squeeze(name.plain, console.width - inner - len(figures)))
        console.print(
            Text.assemble(f"{' ' * indent}{entry.label:>{width}} ", name, figures),
            no_wrap=entry.is_cut,
        )
        for line in entry.lines:
            _print_line(line, console, inner)


def _print_table(table: Table, console: Console, indent: int) -> None:
    """Print the figures in full; the flexible column gets the remaining width."""
    head = tuple(column.title for column in table.columns)
    has_head = any(head)
    rows = (head, *table.rows) if has_head else table.rows
    widths = _widths(table, rows, console.width - indent)
    for row in rows:
        cells = [
            _cell(text, width, is_number=column.is_number)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ]
        _print_row(cells, console, indent, is_head=has_head and row is head)


def _widths(table: Table, rows: Sequence[Sequence[str]], space: int) -> list[int]:
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(len(rows[0]))]
    free = space - sum(widths) - len(_GAP) * (len(widths) - 1)
    for place, column in enumerate(table.columns):
        if column.is_flexible:
            widths[place] = min(widths[place], max(widths[place] + free, _LEAST_WIDTH))
    return widths


def _cell(text: str, width: int, *, is_number: bool) -> str:
    """Return a cell of this width; leading spaces are kept."""
    text = safe(text)
    blank = len(text) - len(text.lstrip())
    squeezed = f"{' ' * blank}{squeeze(text.lstrip(), max(width - blank, 1))}"
    return squeezed.rjust(width) if is_number else squeezed.ljust(width)


def _print_row(cells: Sequence[str], console: Console, indent: int, *, is_head: bool) -> None:
    from rich.text import Text

    text = Text(f"{' ' * indent}{_GAP.join(cells)}".rstrip(), no_wrap=True, overflow="ignore")
    if is_head:
        text.stylize("bold", indent, indent + len(cells[0]))
        text.stylize("dim", indent + len(cells[0]))
    console.print(text)


def _print_hidden(hidden: int, noun: str, console: Console, indent: int) -> None:
    if hidden > 0:
        more = plural(hidden, f"more {noun}")
        _print_line(Line(spans=(Span(f"… and {more}: --top N", Tone.QUIET),)), console, indent)
