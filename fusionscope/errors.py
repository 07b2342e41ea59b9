"""The one error that bad input raises."""

from __future__ import annotations


class UnusableInput(Exception):
    """Input that fusionscope cannot read, told in one line.

    ``problem`` says what was found and what was expected, ``hint`` what to do about it;
    ``file``, ``line`` and ``column`` (both from 1) say where, as far as that is known.
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
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        place = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        text = f"{place}: {self.problem}" if place else self.problem
        return f"{text}; {self.hint}" if self.hint else text
