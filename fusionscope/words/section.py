"""A part of a report as one value, from which terminal, Markdown and HTML are rendered.

A section has a title, a summary, and blocks: lines, entries of a list, and tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Tone(StrEnum):
    """The weight of words: each format has a style for it."""

    PLAIN = "plain"
    STRONG = "strong"
    QUIET = "quiet"
    GOOD = "good"
    BAD = "bad"
    HINT = "hint"
    WARNING = "warning"


class Span(NamedTuple):
    """Words of one tone. They may contain any character: renderers make them safe. If a line has
    to be cut, those that are ``is_flexible`` are squeezed.
    """

    text: str
    tone: Tone = Tone.PLAIN
    is_flexible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of spans. A terminal wraps it, or shortens it if it ``is_cut``. The spans of a line
    that ``is_command`` are words, to be quoted for a shell.
    """

    spans: tuple[Span, ...]
    is_cut: bool = False
    is_command: bool = False

    @property
    def text(self) -> str:
        """The words without tones."""
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines in their order."""

    lines: tuple[Line, ...]
    type: str = field(default="lines", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing of a list: a label (a rank or a figure), its name, figures beside the name, and
    lines below it, of which the first takes the place of an empty name. ``pairs`` are the producers
    and consumers that it is about. A terminal squeezes the name of an entry that ``is_cut`` into
    one line.
    """

    label: str
    name: tuple[Span, ...] = ()
    figures: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The first entries of a list of ``noun``s, and how many are ``hidden``. ``columns`` are the
    titles of the figures in a table.
    """

    noun: str
    columns: tuple[str, ...] = ()
    entries: tuple[Entry, ...]
    hidden: int = 0
    type: str = field(default="entries", init=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. A terminal squeezes the one that ``is_flexible`` to fit the width, and
    breaks the lines of one that ``wraps``.
    """

    title: str
    is_number: bool = False
    is_flexible: bool = False
    wraps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The first rows of a table of ``noun``s, and how many are ``hidden``. Leading spaces of a cell
    indent it. A terminal shows the titles of columns only if the table ``has_head``.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | Span, ...], ...]
    noun: str = "row"
    hidden: int = 0
    has_head: bool = True
    type: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Plot:
    """Numbers of bytes from left to right. Markdown leaves it out."""

    caption: str
    bytes: tuple[int, ...]
    type: str = field(default="plot", init=False)


Block = Lines | Entries | Table | Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report. Without a title, it continues the section before it. A terminal shortens
    title and summary to one line if the section ``is_cut``; a page folds one that ``is_minor``. A
    section that ``is_heading`` begins a new subject: the sections after it belong to it.
    """

    title: str = ""
    summary: tuple[Span, ...] = ()
    blocks: tuple[Block, ...] = ()
    is_cut: bool = False
    is_minor: bool = False
    is_heading: bool = False


def spans(*words: str | tuple[str, Tone]) -> tuple[Span, ...]:
    """Return spans: plain words, or words with a tone. Empty words are dropped."""
    pairs = ((text, Tone.PLAIN) if isinstance(text, str) else text for text in words)
    return tuple(Span(*pair) for pair in pairs if pair[0])


def as_span(cell: str | Span) -> Span:
    """Return a cell of a table with its tone."""
    return cell if isinstance(cell, Span) else Span(cell)


def strong(text: str) -> tuple[Span, ...]:
    """Return a name."""
    return spans((text, Tone.STRONG))


def line(text: str, tone: Tone = Tone.PLAIN, *, is_cut: bool = False) -> Line:
    return Line(spans=(Span(text, tone),), is_cut=is_cut)


def command(words: Iterable[str], tone: Tone = Tone.HINT) -> Line:
    """Return a command line of these words."""
    return Line(spans=tuple(Span(word, tone) for word in words), is_command=True)


def lines(texts: Iterable[str], tone: Tone = Tone.PLAIN, *, is_cut: bool = False) -> Lines:
    return Lines(tuple(line(text, tone, is_cut=is_cut) for text in texts))


def ranked(noun: str, entries: Sequence[Entry], total: int, columns: Sequence[str] = ()) -> Entries:
    """Return the first of ``total`` entries of a list."""
    hidden = total - len(entries)
    return Entries(noun=noun, columns=tuple(columns), entries=tuple(entries), hidden=hidden)


def table_of(
    noun: str,
    columns: Sequence[Column],
    rows: Sequence[tuple[str | Span, ...]],
    total: int,
    *,
    has_head: bool = True,
) -> Table:
    """Return the first rows of ``total``."""
    return Table(
        columns=tuple(columns),
        rows=tuple(rows),
        noun=noun,
        hidden=total - len(rows),
        has_head=has_head,
    )
