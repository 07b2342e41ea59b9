"""Places in the user's repository."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.check.expectation import Violation

_ELSEWHERE = re.compile(r"\w+:")  # another machine's drive, or an address


@dataclass(frozen=True, slots=True)
class Place:
    """``file`` is relative to the root of the repository, with slashes; ``line`` is from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Repository:
    """``root`` is its directory, ``here`` the one that relative names start from."""

    root: Path
    here: Path

    def relative(self, name: str) -> str | None:
        """Return ``name`` relative to the repository; None if it is outside of it."""
        name = name.replace("\\", "/")
        if not name or _ELSEWHERE.match(name):
            return None
        path = Path(os.path.normpath(self.here / name))
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None

    def shown(self, source: str) -> str:
        """Return a ``file:line`` relative to the repository, if it is inside."""
        name, colon, line = source.rpartition(":")
        relative = self.relative(name)
        return f"{relative}{colon}{line}" if relative is not None and line.isdecimal() else source

    def place(self, violation: Violation, file: str) -> Place | None:
        """Return the user's own line if it is in the repository, or else that of the expectation in
        ``file``; None if neither is.
        """
        if violation.source is not None:
            name, _, number = violation.source.rpartition(":")
            relative = self.relative(name)
            if relative is not None and number.isdecimal():
                return Place(relative, max(1, int(number[:18])))
        relative = self.relative(file)
        return None if relative is None else Place(relative, violation.expectation.line or 1)


def find_repository() -> Repository:
    """Return the repository of the current directory, or that directory itself if there is none."""
    here = Path.cwd()
    roots = (parent for parent in (here, *here.parents) if (parent / ".git").exists())
    return Repository(next(roots, here), here)
