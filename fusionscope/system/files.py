"""The one place that opens input files and writes output files."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from fusionscope.errors import UnusableInput

# More than any real dump file; less than would fill a machine's memory.
LARGEST_BYTES = 2 << 30
# HLO text that was compressed with gzip grows by 5 to 40 times.
_LARGEST_GROWTH = 100
_ALWAYS_ACCEPTED_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def why_unreadable(path: Path) -> str:
    """Return why ``path`` cannot be read, as far as its metadata show, or ""."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "a link to a file that is not there" if path.is_symlink() else "no such file"
    except (OSError, ValueError) as error:  # a name may contain a zero byte
        return _cannot("read", error)
    if stat.S_ISREG(mode):
        return ""
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no regular file")
    return f"{kind}, expected a regular file"


def is_there(path: Path) -> bool:
    """Return whether something has that name, even a broken link. Never raises."""
    try:
        path.lstat()
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return True


def is_directory(path: Path) -> bool:
    """Return whether it is a directory. Never raises, unlike ``Path.is_dir``."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def read_file(
    path: Path, *, start: int = 0, end: int | None = None, name: str | None = None
) -> bytes:
    """Return the bytes of a regular file from ``start`` to ``end``, by default the end of the file.

    ``name`` is its name in messages. Never waits: FIFOs, sockets and devices are refused. Raises
    ``UnusableInput``.
    """
    name = str(path) if name is None else name
    with _opened(path, name) as (file, status):
        if status.st_size > LARGEST_BYTES:
            raise _too_large(name, LARGEST_BYTES)
        file.seek(start)
        if end is not None:
            return file.read(max(0, end - start))
        return _read_all(file, LARGEST_BYTES, name)


def read_own_file(path: Path, *, largest: int = LARGEST_BYTES) -> bytes:
    """Return the bytes of a file that only this user, or root, can have written, and that is no
    link.

    Raises ``UnusableInput``, also if there are more than ``largest``.
    """
    with _opened(path, str(path), getattr(os, "O_NOFOLLOW", 0)) as (file, status):
        is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnusableInput("others can write it", file=str(path))
        if status.st_size > largest:
            raise _too_large(str(path), largest)
        return _read_all(file, largest, str(path))


@contextlib.contextmanager
def _opened(path: Path, name: str, flags: int = 0) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open a regular file. Raises ``UnusableInput`` if there is none, or if reading fails."""
    if problem := why_unreadable(path):
        raise UnusableInput(problem, file=name)
    try:
        # If the path becomes a FIFO meanwhile, opening it must not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | flags)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnusableInput("expected a regular file", file=name)
            yield file, status
    except OSError as error:
        raise UnusableInput(_cannot("read", error), file=name) from None


def read_text(path: Path) -> str:
    """Return the text of a regular UTF-8 file. Raises ``UnusableInput``."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableInput(
            f"byte {error.start} is not UTF-8, expected text", file=str(path)
        ) from None


def uncompress(data: bytes, name: str) -> bytes:
    """Return the content of a gzip file of one or more members.

    Raises ``UnusableInput`` if it is damaged, or unpacks to more than any dump would.
    """
    largest = min(LARGEST_BYTES, max(_ALWAYS_ACCEPTED_BYTES, _LARGEST_GROWTH * len(data)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return _read_all(stream, largest, name)
    except (OSError, EOFError, zlib.error) as error:
        raise UnusableInput(f"not a whole gzip file: {error}", file=name) from None


def _read_all(stream: BinaryIO | gzip.GzipFile, largest: int, name: str) -> bytes:
    """Read in chunks, since the size that a file claims may be wrong."""
    content = io.BytesIO()
    while chunk := stream.read(_CHUNK_BYTES):
        content.write(chunk)
        if content.tell() > largest:
            raise _too_large(name, largest)
    return content.getvalue()


def _too_large(name: str, largest: int) -> UnusableInput:
    return UnusableInput(f"holds more than {largest:,} bytes, expected a dumped file", file=name)


def write_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Write ``path`` completely or not at all: the content is written to a file beside it, which is
    then renamed.

    Devices and FIFOs, such as ``/dev/stdout``, are written to directly. ``mode`` is that of a new
    file, which the umask narrows. Raises ``UnusableInput`` if writing fails; the old file then
    still exists.
    """
    data = content.encode("utf-8", errors="replace") if isinstance(content, str) else content
    try:
        old = path.stat().st_mode if path.exists() else None
        if old is not None and not stat.S_ISREG(old):
            path.write_bytes(data)
            return
        target = path.resolve()  # a link stays, and its target is replaced
        with _beside(target) as part:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as file:
                if old is not None:
                    part.chmod(stat.S_IMODE(old))
                file.write(data)
                file.flush()
                os.fsync(descriptor)  # a full disk may only show here
            part.replace(target)
    except (OSError, ValueError, RuntimeError) as error:  # a zero byte, a loop of links
        raise UnusableInput(_cannot("written", error), file=str(path)) from None


def append_file(path: Path, text: str) -> None:
    """Append ``text`` to a file that other processes append to too. Raises ``UnusableInput``."""
    if is_there(path) and (problem := why_unreadable(path)):
        raise UnusableInput(problem, file=str(path))
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise UnusableInput(_cannot("written", error), file=str(path)) from None


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield a path in the same directory, and remove the file in the end."""
    part = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Make ``path`` and its parents. Raises ``UnusableInput``."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise UnusableInput(_cannot("written", error), file=str(path)) from None


def free_directory(directory: Path) -> Path:
    """Return the directory, or the first with a number after its name, that is new or empty."""
    numbered = (directory.with_name(f"{directory.name}-{number}") for number in count(2))
    return next(place for place in chain([directory], numbered) if _is_free(place))


def _is_free(place: Path) -> bool:
    try:
        return not any(place.iterdir())
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _cannot(doing: str, error: Exception) -> str:
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be {doing}: {words}"
