"""What a result was made from: files of a dump, as they were when they were read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fusionscope.dump.files import DumpFile

# File systems need not tell apart two changes within this time.
_SETTLED_NS = 2_000_000_000

Stamp = tuple[int, int, int, int]


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes when somebody writes a file: its size, two times and its inode.

    Returns None if it cannot be examined, or was changed so recently that another change need not
    show.
    """
    now = time.time_ns()
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if max(status.st_mtime_ns, status.st_ctime_ns) > now - _SETTLED_NS:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was read: its stamp right before, and the digest of its content."""

    stamp: Stamp | None
    digest: bytes


@dataclass(slots=True)
class Uses:
    """What one result was made from, and the operations in it that no rule knows.

    ``is_repeatable`` is false if something could not be read, or was not read from files alone.
    """

    files: dict[DumpFile, ReadFile] = field(default_factory=dict)
    unknown_opcodes: set[str] = field(default_factory=set)
    is_repeatable: bool = True


@dataclass(slots=True)
class FileReader:
    """Reads the files of a dump, and records what each result was made from."""

    unknown_opcodes: dict[DumpFile, set[str]] = field(default_factory=dict)
    _read: dict[DumpFile, ReadFile] = field(default_factory=dict)
    _uses: Uses = field(default_factory=Uses)

    def read(self, file: DumpFile) -> bytes:
        """Return the content. Raises ``UnusableInput``."""
        stamp = stamp_of(file.path)
        content = file.read()
        self._read[file] = ReadFile(stamp, digest_of(content))
        return content

    def digest(self, file: DumpFile) -> bytes:
        """Return the digest of the content of a file that was read."""
        return self._read[file].digest

    def use(self, file: DumpFile) -> None:
        """Record the use of a file that was read, now or for another result."""
        self._uses.files[file] = self._read[file]
        self._uses.unknown_opcodes |= self.unknown_opcodes.get(file, set())

    def use_again(self, uses: Uses) -> None:
        """Record the uses of a result that was kept."""
        self._uses.files |= uses.files
        self._uses.unknown_opcodes |= uses.unknown_opcodes
        self._uses.is_repeatable &= uses.is_repeatable

    def fail(self) -> None:
        """Record that another run may find something else."""
        self._uses.is_repeatable = False

    @contextmanager
    def recording(self) -> Iterator[Uses]:
        """Record what is used meanwhile."""
        outer, self._uses = self._uses, Uses()
        try:
            yield self._uses
        finally:
            self._uses = outer
