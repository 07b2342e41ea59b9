"""A line of the user's program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line (from 1) of a user's file; ``function`` and ``column`` if the compiler
    recorded them.
    """

    file: str
    line: int
    function: str | None = None
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
