"""Renders sections as Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from fusionscope.words.section import (
    Block,
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
)
from fusionscope.words.text import cell, code, plural


def to_markdown(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the lines of sections."""
    for section in sections:
        if section.title:
            title = cell(section.title)
            summary = f": {_words(section.summary)}" if section.summary else ""
            yield f"## {title}\n" if section.is_heading else f"**{title}**{summary}\n"
        for block in section.blocks:
            yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if texts := list(_block_lines(block)):
        yield from texts
        yield ""


def _block_lines(block: Block) -> Iterator[str]:
    match block:
        case Lines():
            yield from map(_item, block.lines)
        case Entries():
            yield from _entry_table(block)
            yield from _hidden(block.hidden, block.noun)
        case Table():
            yield from _table(block)
            yield from _hidden(block.hidden, block.noun)
        case Plot():
            pass


def _item(line: Line) -> str:
    is_warning = line.spans[0].tone is Tone.WARNING
    return f"> {_line(line)}\n" if is_warning else f"- {_line(line)}"


def _line(line: Line) -> str:
    if line.is_command:
        return code(shlex.join(span.text for span in line.spans))
    return _words(line.spans)


def _words(spans: Sequence[Span]) -> str:
    """Return spans as text: names, which are strong, as code."""
    return "".join(
        code(span.text) if span.tone is Tone.STRONG else cell(span.text) for span in spans
    )


def _entry_table(entries: Entries) -> Iterator[str]:
    """Yield a table with a column for each figure, and one for the lines."""
    columns = entries.columns
    yield f"| | {' | '.join((entries.noun, *columns, ''))} |"
    yield f"|--:|---|{'--:|' * len(columns)}---|"
    yield from (_entry_row(entry, len(columns)) for entry in entries.entries)


def _entry_row(entry: Entry, count: int) -> str:
    figures = [cell(figure) for figure in entry.figures]
    figures += [""] * (count - len(figures))
    below = "<br>".join(map(_line, entry.lines))
    return f"| {' | '.join((cell(entry.label), _words(entry.name), *figures, below))} |"


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(cell(column.title) for column in table.columns)} |"
    yield f"|{''.join('--:|' if column.is_number else '---|' for column in table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(_indented(as_span(part).text) for part in row)} |"


def _indented(text: str) -> str:
    blank = len(text) - len(text.lstrip())
    return f"{'&nbsp;' * blank}{cell(text.lstrip())}"


def _hidden(hidden: int, noun: str) -> Iterator[str]:
    if hidden > 0:
        yield f"\n… and {plural(hidden, f'more {noun}')}: `--top N`"
