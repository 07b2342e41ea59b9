"""The files of a dump: on disk, compressed, or printed one after the other into one text."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionscope.dump.names import read_name
from fusionscope.errors import UnusableInput
from fusionscope.system.files import is_directory, read_file, uncompress, why_unreadable

_CAPTURES = frozenset({"", ".txt", ".log", ".out"})
_BEGIN = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One file of a dump. ``name`` is the compiler's name for it, ``path`` the file that contains
    it.

    If ``path`` is the captured output of ``--xla_dump_to=-``, ``start`` and ``end`` (bytes) are the
    bounds of the file in it.
    """

    name: str
    path: Path
    start: int = 0
    end: int | None = None

    def __str__(self) -> str:
        return str(self.path) if self.end is None else f"{self.path} ({self.name})"

    @property
    def size(self) -> int:
        """Bytes on disk; 0 if the file is gone."""
        try:
            return (self.path.stat().st_size if self.end is None else self.end) - self.start
        except OSError:
            return 0

    def read(self) -> bytes:
        """Return the content, uncompressed. Raises ``UnusableInput`` if it cannot be read."""
        data = read_file(self.path, start=self.start, end=self.end, name=str(self))
        return uncompress(data, str(self)) if self.path.suffix == ".gz" else data

    def head(self, size: int) -> bytes:
        """Return the first bytes of the content, up to ``size``. Raises ``UnusableInput``."""
        end = self.start + size if self.end is None else min(self.end, self.start + size)
        data = read_file(self.path, start=self.start, end=end, name=str(self))
        if self.path.suffix != ".gz":
            return data
        try:
            return zlib.decompressobj(wbits=31).decompress(data, size)
        except zlib.error as error:
            raise UnusableInput(f"not a whole gzip file: {error}", file=str(self)) from None

    def text(self) -> str:
        """Return the content as text."""
        return as_text(self.read())


def as_text(content: bytes) -> str:
    """Decode the content of a file. Bytes that are not UTF-8 become replacement characters."""
    return content.decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Found:
    """The files below a path in a fixed order, and one line on each that cannot be read."""

    files: tuple[DumpFile, ...]
    problems: tuple[str, ...]


def find_files(path: Path) -> Found:
    """Return every file below ``path``, or the sections of captured output.

    Anything other than a regular file is only included if it has the name of a dump file.
    """
    files: list[DumpFile] = []
    problems: list[str] = []
    paths = [path]
    if is_directory(path):
        paths = sorted(_below(path, problems), key=lambda below: below.parts)
    for file_path in paths:
        file = DumpFile(file_path.name.removesuffix(".gz"), file_path)
        is_named = read_name(file.name) is not None
        if problem := why_unreadable(file_path):
            if is_named or file_path is path:
                problems.append(f"{file_path}: {problem}")
                files.append(file)
            continue
        printed = file_path.suffix in _CAPTURES and (file_path is path or not is_named)
        files += (list(_sections(file_path)) if printed else []) or [file]
    return Found(tuple(files), tuple(problems))


def _below(directory: Path, problems: list[str]) -> Iterator[Path]:
    """Yield everything but directories. Unreadable directories are added to ``problems``."""

    def tell(error: OSError) -> None:
        problems.append(f"{error.filename}: cannot be read: {error.strerror}")

    for folder, _, names in os.walk(directory, onerror=tell):
        for name in names:
            yield Path(folder, name)


def _sections(path: Path) -> Iterator[DumpFile]:
    try:
        if b"*** Begin " not in read_file(path, end=1 << 20):
            return
        data = read_file(path)
    except UnusableInput:  # reported when the file is read
        return
    begins = list(_BEGIN.finditer(data))
    for index, begin in enumerate(begins):
        name = begin[1].decode("utf-8", errors="replace")
        limit = begins[index + 1].start() if index + 1 < len(begins) else len(data)
        end = data.rfind(b"*** End ", begin.end(), limit)
        yield DumpFile(name, path, begin.end() + 1, end if end >= 0 else limit)
