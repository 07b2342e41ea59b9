"""The files of a dump: on disk, compressed, or printed one after the other into one text."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionscope.dump.names import read_name
from fusionscope.errors import UnusableInput

# More than any stage that was ever seen; less than would fill a machine's memory.
_LARGEST = 4 << 30

_CAPTURES = frozenset({"", ".txt", ".log", ".out"})
_BEGIN = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One file of a dump. ``name`` is what the compiler called it, ``path`` where its bytes lie.

    Where ``path`` is a capture of what ``--xla_dump_to=-`` printed, ``start`` and ``end`` (bytes)
    cut the file out of it.
    """

    name: str
    path: Path
    start: int = 0
    end: int | None = None

    def __str__(self) -> str:
        return str(self.path) if self.end is None else f"{self.path} ({self.name})"

    @property
    def size(self) -> int:
        """Bytes on disk; 0 where the file has gone."""
        try:
            return (self.path.stat().st_size if self.end is None else self.end) - self.start
        except OSError:
            return 0

    def read(self) -> bytes:
        """The content, uncompressed. Raises ``UnusableInput`` where it cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                data = file.read() if self.end is None else file.read(self.end - self.start)
        except OSError as error:
            raise UnusableInput(
                f"cannot be read: {error.strerror or error}", file=str(self)
            ) from None
        return _uncompressed(data, str(self)) if self.path.suffix == ".gz" else data

    def text(self) -> str:
        """The content as text; bytes that are no UTF-8 become replacement characters."""
        return self.read().decode("utf-8", errors="replace")


def _uncompressed(data: bytes, file: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            content = stream.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnusableInput(f"not a whole gzip file: {error}", file=file) from None
    if len(content) > _LARGEST:
        raise UnusableInput("holds more than 4 GiB, expected a dumped file", file=file)
    return content


def find_files(path: Path) -> Iterator[DumpFile]:
    """Every file below ``path``, or the sections of a captured print-out, in a fixed order."""
    if path.is_file():
        sections = list(_sections(path)) if path.suffix in _CAPTURES else []
        yield from sections or [DumpFile(path.name.removesuffix(".gz"), path)]
        return
    for file in sorted(path.rglob("*")):
        if file.is_file():
            found = DumpFile(file.name.removesuffix(".gz"), file)
            printed = file.suffix in _CAPTURES and read_name(found.name) is None
            yield from (list(_sections(file)) if printed else []) or [found]


def _sections(path: Path) -> Iterator[DumpFile]:
    try:
        with path.open("rb") as file:
            if b"*** Begin " not in file.read(1 << 20):
                return
            file.seek(0)
            data = file.read()
    except OSError:  # told where the file is asked for
        return
    begins = list(_BEGIN.finditer(data))
    for index, begin in enumerate(begins):
        name = begin[1].decode("utf-8", errors="replace")
        limit = begins[index + 1].start() if index + 1 < len(begins) else len(data)
        end = data.rfind(b"*** End ", begin.end(), limit)
        yield DumpFile(name, path, begin.end() + 1, end if end >= 0 else limit)
