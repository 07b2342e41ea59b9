"""Keeps results between runs, in the user's own cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionscope.errors import UnusableInput
from fusionscope.system.files import make_directory, read_own_file, write_file

LARGEST_ENTRY_BYTES = 128 << 20
LARGEST_CACHE_BYTES = 256 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_directory() -> Path | None:
    """Return the place of everything that fusionscope caches, or None for a user without a home."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "fusionscope"


def caches(directory: Path) -> tuple[Cache, Cache]:
    """Return the cache of what the grammar derives, and that of results about dumps."""
    return Cache(directory), Cache(directory / "results")


@dataclass(frozen=True, slots=True)
class Cache:
    """Entries in one directory, each a file that only the user can have written.

    The least recently used entries are removed when all take more than ``largest`` bytes. No method
    but ``clear`` raises: what cannot be read is not there, and what cannot be written is not kept.
    ``find_problem`` tells why.
    """

    directory: Path
    largest: int = LARGEST_CACHE_BYTES

    def read(self, name: str) -> bytes | None:
        """Return what was written under ``name``.

        Returns None if there is nothing, it is damaged, or somebody else could have written it.
        """
        file = self.directory / name
        try:
            content = read_own_file(file, largest=LARGEST_ENTRY_BYTES) if self._is_own() else b""
        except UnusableInput:
            return None
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            return None
        with contextlib.suppress(OSError):
            os.utime(file)  # used now
        return data

    def write(self, name: str, data: bytes) -> None:
        """Keep ``data``, whole or not at all, whoever writes at the same time."""
        if len(data) > min(LARGEST_ENTRY_BYTES - _DIGEST_BYTES, self.largest):
            return
        with contextlib.suppress(UnusableInput, OSError, ValueError):
            self._write(self.directory / name, data)
            self._shrink()

    def find_problem(self) -> str:
        """Write an entry and remove it. Return why nothing can be kept, or ""."""
        file = self.directory / f"tried-{os.getpid()}"
        try:
            self._write(file, b"")
            file.unlink()
        except (UnusableInput, OSError, ValueError) as error:
            return str(error)
        return ""

    def _write(self, file: Path, data: bytes) -> None:
        """Raises ``UnusableInput``, ``OSError`` or ``ValueError`` if it cannot be kept."""
        make_directory(self.directory.parent)
        with contextlib.suppress(FileExistsError):
            self.directory.mkdir(mode=0o700)
        if not self._is_own():
            problem = "others can write to it, or it is no directory of this user"
            raise UnusableInput(problem, file=str(self.directory))
        with contextlib.suppress(FileNotFoundError):
            if file.lstat().st_mode != stat.S_IFREG | 0o600:  # something else is there
                file.unlink()
        write_file(file, hashlib.sha256(data).digest() + data, mode=0o600)

    def _is_own(self) -> bool:
        """Return whether only this user can create files here."""
        try:
            status = self.directory.lstat()
        except (OSError, ValueError):
            return False
        is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        is_open = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        return stat.S_ISDIR(status.st_mode) and is_own and not is_open

    def _shrink(self) -> None:
        entries = sorted(self._entries(), key=lambda entry: -entry[1].st_mtime_ns)
        total = 0
        for file, status in entries:
            total += status.st_size
            if total > self.largest:
                with contextlib.suppress(OSError):
                    file.unlink()

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        with contextlib.suppress(OSError), os.scandir(self.directory) as found:
            for each in found:
                with contextlib.suppress(OSError):
                    if each.is_file(follow_symlinks=False):
                        yield Path(each.path), each.stat(follow_symlinks=False)

    def measure(self) -> tuple[int, int]:
        """Return the number of entries, and their bytes."""
        sizes = [status.st_size for _, status in self._entries()]
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove all entries. Raises ``UnusableInput`` if one cannot be removed."""
        for file, _ in self._entries():
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                problem = f"cannot be removed: {error.strerror}"
                raise UnusableInput(problem, file=str(file)) from None
