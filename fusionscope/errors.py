"""The one error that bad input raises, and how it quotes input."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 800  # characters of a problem, and of the name of a file


def shorten(text: str, limit: int = 60) -> str:
    """``text`` on one line, without control characters, cut at ``limit`` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(character if character.isprintable() else "�" for character in cut)


def quoted(value: object) -> str:
    """``value`` as Python writes it, on one line and cut where it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:59]}…")
    return shorten(repr(value))


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return a hint at the ``names`` that are most like ``name``, or None."""
    from difflib import get_close_matches  # only where something is wrong

    close = get_close_matches(name, list(dict.fromkeys(names)), 3, 0.6)
    return f"did you mean {' or '.join(map(quoted, close))}?" if close else None


def expected_one_of(name: str, names: Iterable[str]) -> str:
    """Return a message about an unknown name: the one that may be meant, or the first twelve."""
    from difflib import get_close_matches

    options = list(names)
    close = get_close_matches(name, options, 1, 0.5)
    return (
        f"did you mean {quoted(close[0])}?"
        if close
        else f"expected one of {', '.join(options[:12])}"
    )


class UnusableInput(Exception):
    """Input that fusionscope cannot use, reported in one line.

    ``problem`` says what was found and what was expected, ``hint`` what to do about it;
    ``file``, ``line`` and ``column`` (both from 1) say where, as far as that is known. A problem
    quotes input by ``quoted`` or ``shorten``; one that is long all the same is cut.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem = problem if len(problem) <= _LONGEST else f"{problem[: _LONGEST - 1]}…"
        self.file = file
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        file = self.file and shorten(self.file, _LONGEST)
        place = ":".join(str(part) for part in (file, self.line, self.column) if part is not None)
        text = f"{place}: {self.problem}" if place else self.problem
        return f"{text}; {self.hint}" if self.hint else text
