"""The notation of figures and names in every report for people."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar


def safe(text: str) -> str:
    """Return ``text`` on one line, with each unprintable character replaced.

    That includes all characters that move a terminal's cursor, end a line (U+2028), are invisible,
    or change the direction of text (U+061C, U+202E).
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def safe_lines(text: str) -> str:
    """Return the same for text of several lines, which are kept."""
    return "\n".join(map(safe, text.split("\n")))


def shorten(text: str, width: int) -> str:
    """Return ``text`` made safe and cut to ``width`` characters."""
    text = safe(text)
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def squeeze(text: str, width: int) -> str:
    """Return ``text`` made safe and cut to ``width`` characters in its middle."""
    text = safe(text)
    if len(text) <= width:
        return text
    end = max(width - 1, 0) * 2 // 3
    return f"{text[: max(width - 1, 0) - end]}…{text[len(text) - end :]}"


def size(count: int) -> str:
    """Return a number of bytes in decimal units, as memory bandwidths are given."""
    figure = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if figure < 999.5 or unit == "TB":
            break
        figure /= 1000
    if unit == "B":
        return f"{count} B"
    return f"{figure:.0f} {unit}" if figure >= 99.5 else f"{figure:.3g} {unit}"


def duration(microseconds: float) -> str:
    figure = microseconds if abs(microseconds) >= 0.0005 else 0.0  # without an exponent
    for unit in ("µs", "ms", "s"):
        if figure < 999.5 or unit == "s":
            break
        figure /= 1000
    return f"{figure:,.0f} {unit}" if figure >= 99.5 else f"{figure:.3g} {unit}"


def percent_change(before: float, after: float) -> str:
    """Return a change in percent, such as ``-8.3%`` or ``+1,260%``; empty if there was nothing."""
    if not before:
        return ""
    percent = 100 * (after / before - 1)
    if abs(percent) < 0.01:
        return "±0%"
    return f"{percent:+.2g}%" if abs(percent) < 9.95 else f"{percent:+,.0f}%"


Figure = TypeVar("Figure", int, float)


def or_dash(figure: Figure | None, words_of: Callable[[Figure], str]) -> str:
    """Return a figure in words, or a dash if it is zero or unknown."""
    return words_of(figure) if figure else "-"


def file_and_line(source: str | None) -> str:
    """Shorten a path from the left: in a narrow column its last part identifies it."""
    return shorten((source or "").replace("\\", "/").rpartition("/")[2], 24)


def program(module: str) -> str:
    """Return the name of a module, without what TensorFlow adds to that of a function."""
    return module.partition("__XlaMustCompile")[0]


def _many(noun: str) -> str:
    if noun.endswith("y") and not noun.endswith(("ay", "ey", "oy", "uy")):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "ch", "sh", "x")) else f"{noun}s"


def plural(count: int, noun: str, many: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else many or _many(noun)}"


def command_lines(words: Sequence[str], width: int) -> list[str]:
    """Return the lines of a command line for a shell, quoted: all but the last end with a
    backslash. A line breaks before an option only, so one may be longer than ``width``.
    """
    parts: list[list[str]] = []
    for word in words:
        if not parts or word.startswith("--"):
            parts.append([])
        parts[-1].append(shlex.quote(word))
    lines: list[str] = []
    for part in map(" ".join, parts):
        if lines and len(lines[-1]) + len(part) + 3 <= width:  # with a space and the backslash
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def hidden_entries(hidden: int, noun: str, of: str = "") -> str:
    """Return how many entries a list omits, and how to see them."""
    return f"… and {plural(hidden, f'more {noun}')}{of}: --top N"


def counted(opcodes: Iterable[str], between: str = " ") -> str:
    """Return what a kernel computes: each opcode once, with its count."""
    return between.join(
        f"{count} {name}" if count > 1 else name for name, count in Counter(opcodes).items()
    )


def first_names(names: Sequence[str], most: int = 2) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def cell(text: str) -> str:
    """Return ``text`` for a cell of a table, or a line, of Markdown, without links or HTML."""
    for character, escape in _WRITTEN:
        text = text.replace(character, escape)
    return _LINKING.sub(r"\\\g<0>", safe(text))


def code(text: str) -> str:
    """Return ``text`` as a code span in Markdown, also in a table."""
    return f"`{safe(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`" if text else ""


# Characters with a meaning in Markdown, and their escaped forms. An escaped @ still mentions
# somebody on GitHub, so another character replaces it.
_WRITTEN = (
    ("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'"),
    ("@", "\N{FULLWIDTH COMMERCIAL AT}"),
)  # fmt: skip
# A link or its definition, and addresses that become links by themselves.
_LINKING = re.compile(r"\](?=[(\[:])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
