"""Directories that no path may leave."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import is_directory, is_there

_LONGEST = 1_000  # characters of a path


@dataclass(frozen=True, slots=True)
class Roots:
    """``directories``, with links resolved: no path outside of them is used."""

    directories: tuple[Path, ...]

    @staticmethod
    def read(paths: Iterable[Path]) -> Roots:
        """Raises ``UnusableInput`` if one of ``paths`` is no directory."""
        directories = []
        for path in paths:
            if not is_directory(path):
                raise UnusableInput("expected a directory", file=str(path))
            directories.append(path.resolve())
        return Roots(tuple(directories))

    def find(self, name: str) -> Path:
        """Return the file or directory that ``name`` means, relative to the first root that has it,
        or absolute. Raises ``UnusableInput`` if it, or a file in it, is outside of all roots.
        """
        places = list(self._places(name))
        path = next(filter(is_there, places), None)
        if path is None:
            raise UnusableInput(f"no such file or directory below the roots: {quoted(name)}")
        for outer in _linked(path):
            if not self._contains(outer):
                raise UnusableInput(f"{quoted(name)} has a link that leaves the roots")
        return path

    def find_side(self, words: str) -> str:
        """Return a file or directory, or one with a stage, ``DUMP@STAGE``, as ``diff`` takes it."""
        name, at, stage = words.rpartition("@")
        try:
            return str(self.find(words))
        except UnusableInput:
            side = f"{self.find(name)}@{stage}" if at else ""
            if not side or is_there(Path(side)):  # it would be read as a path
                raise
            return side

    def find_new(self, name: str) -> Path:
        """Return a place to write to, below the first root if ``name`` is relative."""
        return next(self._places(name))

    def _places(self, name: str) -> Iterator[Path]:
        """Yield where ``name`` may be, links resolved. Raises ``UnusableInput`` if nowhere."""
        if not name or not name.isprintable() or len(name) > _LONGEST:
            raise UnusableInput(f"{quoted(name)} is no path")
        paths = []
        for root in self.directories:
            path = Path(os.path.realpath(root / name))
            if path.is_symlink():  # as nothing is that a link leads to, but for a loop
                raise UnusableInput(f"{quoted(name)} is a loop of links")
            if self._contains(path):
                paths.append(path)
        if not paths:
            raise UnusableInput(f"{quoted(name)} is outside of the roots")
        yield from paths

    def _contains(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self.directories)


def _linked(path: Path) -> Iterator[Path]:
    """Yield where the links in a directory lead. Links to directories are not followed further: no
    reader of a dump does.
    """
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            if file.is_symlink():
                yield Path(os.path.realpath(file))
