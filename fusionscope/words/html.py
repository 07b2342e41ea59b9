"""Renders sections as HTML, for a cell of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

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
)
from fusionscope.words.text import command_lines, hidden_entries, safe, size

_WIDTH = 100  # characters of a line of a command
_PLOT = 600, 80  # pixels
_GAP = "  "  # in lines with columns
_NAMED = frozenset(Tone) - {Tone.PLAIN}
# A notebook's own theme has the text's colour; those below can be read on light and on dark.
_STYLE = """
.fusionscope { font-size: 90%; line-height: 1.4 }
.fusionscope h3, .fusionscope h4 { margin: 0.8em 0 0.2em; font-size: 110% }
.fusionscope h4 { font-size: 100% }
.fusionscope h3 span, .fusionscope h4 span { font-weight: normal }
.fusionscope p { margin: 0; white-space: pre-wrap }
.fusionscope pre { margin: 0; white-space: pre-wrap; background: none }
.fusionscope table { margin: 0.2em 0; border-collapse: collapse }
.fusionscope th, .fusionscope td { padding: 0 1em 0 0; text-align: left; vertical-align: top }
.fusionscope td { white-space: pre-wrap }
.fusionscope .number { text-align: right; white-space: nowrap }
.fusionscope .aligned { font-family: monospace }
.fusionscope .strong { font-weight: bold }
.fusionscope .quiet { opacity: 0.7 }
.fusionscope .good { color: #15803d }
.fusionscope .bad { color: #dc2626 }
.fusionscope .hint { color: #0284c7 }
.fusionscope .warning { color: #b45309 }
"""


def to_html(sections: Iterable[Section]) -> str:
    """Return one element with its own style, and without scripts."""
    parts = (part for section in sections for part in _section(section))
    return "\n".join([f'<div class="fusionscope"><style>{_STYLE}</style>', *parts, "</div>"])


def _section(section: Section) -> Iterator[str]:
    if section.title:
        level = "h3" if section.is_heading else "h4"
        summary = f" <span>{_words(section.summary)}</span>" if section.summary else ""
        yield f"<{level}>{_text(section.title)}{summary}</{level}>"
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Lines():
            yield from map(_line, block.lines)
        case Entries():
            yield f"<table>{''.join(map(_entry, block.entries))}</table>"
            yield from _hidden(block.hidden, block.noun)
        case Table():
            yield from _table(block)
            yield from _hidden(block.hidden, block.noun)
        case Plot():
            yield from _plot(block)


def _line(line: Line) -> str:
    if line.is_command:
        lines = command_lines([span.text for span in line.spans], _WIDTH)
        text = "\n".join(map(_text, lines))
        return f"<pre>{text}</pre>"
    kind = ' class="aligned"' if _GAP in line.text else ""
    return f"<p{kind}>{_words(line.spans)}</p>"


def _words(spans: Sequence[Span]) -> str:
    return "".join(map(_word, spans))


def _word(span: Span) -> str:
    text = _text(span.text)
    return f'<span class="{span.tone}">{text}</span>' if span.tone in _NAMED else text


def _entry(entry: Entry) -> str:
    """Return a row: the label, and beside it the name with its figures above the lines."""
    figures = "".join(f"  {_text(figure)}" for figure in entry.figures if figure)
    name = f"<p>{_words(entry.name)}{figures}</p>" if entry.name else ""
    below = "".join(map(_line, entry.lines))
    return f'<tr><td class="number">{_text(entry.label)}</td><td>{name}{below}</td></tr>'


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    head = "".join(f"<th{_kind(column)}>{_text(column.title)}</th>" for column in table.columns)
    yield f"<table>{f'<tr>{head}</tr>' if table.has_head else ''}"
    for row in table.rows:
        cells = zip(map(as_span, row), table.columns, strict=True)
        yield "".join(
            ["<tr>", *(f"<td{_kind(column)}>{_word(cell)}</td>" for cell, column in cells), "</tr>"]
        )
    yield "</table>"


def _kind(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def _plot(plot: Plot) -> Iterator[str]:
    """Yield the numbers as an area below a line of steps."""
    most = max(plot.bytes, default=0)
    if not most:
        return
    width, height = _PLOT
    step = width / len(plot.bytes)
    path = "".join(f"V{height * (1 - count / most):.1f}h{step:.3f}" for count in plot.bytes)
    yield (
        f'<svg width="{width}" height="{height}" role="img"><title>{_text(plot.caption)}</title>'
        f'<path d="M0 {height}{path}V{height}z" fill="#0284c7" fill-opacity="0.5"/></svg>'
    )
    yield f'<p class="quiet">{_text(plot.caption)}, at most {size(most)}</p>'


def _hidden(hidden: int, noun: str) -> Iterator[str]:
    if hidden > 0:
        yield f'<p class="quiet">{_text(hidden_entries(hidden, noun))}</p>'


def _text(text: str) -> str:
    return escape(safe(text))
