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
_GROUP_OR_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_directory() -> Path | None:
    """Return the place of everything that fusionscope caches, or None for a user without a home.

    ``XDG_CACHE_HOME`` counts if it is absolute, as its specification says.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "fusionscope" if base.is_absolute() else None


def find_cache(folder: str = "") -> Cache | None:
    """Return the cache of the entries in a folder of the cache directory, by default in the
    directory itself; None for a user without a home.
    """
    directory = cache_directory()
    return Cache(directory, folder) if directory is not None else None


@dataclass(frozen=True, slots=True)
class Cache:
    """Entries in a folder of ``root``, each a file that only the user can have written.

    The least recently used files below ``root`` are removed when all take more than ``largest``
    bytes. No method but ``clear`` raises: what cannot be read is not there, and what cannot be
    written is not kept. ``find_problem`` tells why.
    """

    root: Path
    folder: str = ""
    largest: int = LARGEST_CACHE_BYTES

    @property
    def directory(self) -> Path:
        return self.root / self.folder

    def read(self, name: str) -> bytes | None:
        """Return what was written under ``name``.

        Returns None if there is nothing, it is damaged, or somebody else could have written it.
        """
        file = self.directory / name
        try:
            self._check()
            content = read_own_file(file, largest=LARGEST_ENTRY_BYTES)
        except (UnusableInput, OSError, ValueError):
            return None
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            return None
        with contextlib.suppress(OSError, NotImplementedError):
            os.utime(file, follow_symlinks=False)  # used now
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
        _check_way(self.root)
        make_directory(self.root.parent)
        for place in dict.fromkeys((self.root, self.directory)):
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
        self._check()
        with contextlib.suppress(FileNotFoundError):
            if file.lstat().st_mode != stat.S_IFREG | 0o600:  # something else is there
                file.unlink()
        write_file(file, hashlib.sha256(data).digest() + data, mode=0o600)

    def _check(self) -> None:
        """Raise ``UnusableInput`` if somebody else can write to the directory or replace it, and
        ``OSError`` if it is not there.
        """
        _check_way(self.root)
        for place in dict.fromkeys((self.root, self.directory)):
            status = place.lstat()
            is_open = status.st_mode & _GROUP_OR_OTHERS_WRITE
            if not stat.S_ISDIR(status.st_mode) or not _is_of(status, users=_me()) or is_open:
                problem = "others can write to it, or it is no directory of this user"
                raise UnusableInput(problem, file=str(place))

    def _shrink(self) -> None:
        total = 0
        for file, status in sorted(self._files(), key=lambda entry: -entry[1].st_mtime_ns):
            total += status.st_size
            if total > self.largest:
                with contextlib.suppress(OSError):
                    file.unlink()

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield everything below ``root`` but directories; nothing if others can write there."""
        with contextlib.suppress(UnusableInput, OSError, ValueError):
            self._check()
            for folder, folders, names in os.walk(self.root):
                for file in (Path(folder, name) for name in (*folders, *names)):
                    with contextlib.suppress(OSError):
                        status = file.lstat()
                        if not stat.S_ISDIR(status.st_mode):  # links to directories, too
                            yield file, status

    def measure(self) -> tuple[int, int]:
        """Return the number of files below ``root``, and their bytes."""
        sizes = [status.st_size for _, status in self._files()]
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove all files. Raises ``UnusableInput`` if one cannot be removed."""
        for file, _ in self._files():
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                problem = f"cannot be removed: {error.strerror}"
                raise UnusableInput(problem, file=str(file)) from None


def _check_way(root: Path) -> None:
    """Raise ``UnusableInput`` if others can replace a directory above, or a link to one."""
    real = root.parent.resolve()
    for place in dict.fromkeys((*root.parents, real, *real.parents)):
        try:
            status = place.lstat()
        except FileNotFoundError:
            continue
        is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if place == place.parent or stat.S_ISLNK(status.st_mode):
            is_open = False  # nobody replaces the root; the mode of a link means nothing
        if is_open or not _is_of(status, users=_me() | {0}):
            problem = "others can write to it, or it is of another user"
            raise UnusableInput(problem, file=str(place))


def _me() -> frozenset[int]:
    """Return the user, or nobody where files have no owner."""
    return frozenset({os.geteuid()} if hasattr(os, "geteuid") else ())


def _is_of(status: os.stat_result, users: frozenset[int]) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid in users
