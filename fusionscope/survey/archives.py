"""Unpacks the dump files of an archive, which somebody else may have made.

Of a member's name only the last part becomes the name of a file, in a folder that is numbered, and
only if it is the name of a dump file: no member can be written anywhere else.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from fusionscope.dump.names import read_name
from fusionscope.errors import UnusableInput, shorten
from fusionscope.survey.needs import needed
from fusionscope.system.files import make_directory, write_file

SUFFIXES = (".zip", ".tar.zst", ".tar.gz", ".tgz", ".tar")
LARGEST_BYTES = 32 << 30  # of one archive, and of its files unpacked
_LARGEST_FILE_BYTES = 2 << 30
_MOST_MEMBERS = 200_000
_LONGEST_NAME = 250  # bytes


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The folders of an archive that hold dump files, each with its path in the archive, and one
    line on each member that was left out.
    """

    folders: dict[Path, str]
    problems: tuple[str, ...]


def is_archive(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def unpack(archive: Path, into: Path, *, largest: int = LARGEST_BYTES) -> Unpacked:
    """Unpack the dump files of ``archive`` into numbered folders ``into``. Raises ``UnusableInput``
    if it is damaged, or if its dump files have more than ``largest`` bytes.
    """
    places: dict[str, Path] = {}
    problems: list[str] = []
    budget = largest
    try:
        for number, (name, content) in enumerate(_members(archive)):
            if number >= _MOST_MEMBERS:
                raise UnusableInput(f"more than {_MOST_MEMBERS:,} members", file=str(archive))
            path = PurePosixPath(name.replace("\\", "/"))
            if read_name(path.name.removesuffix(".gz")) is None or "\0" in path.name:
                continue
            if content is None or len(path.name.encode("utf-8", "replace")) > _LONGEST_NAME:
                problems.append(f"{shorten(name, 200)}: no regular file, or its name is too long")
                continue
            folder = str(path.parent)
            if folder not in places:
                places[folder] = into / str(len(places))
                make_directory(places[folder])
            data = content.read(min(budget, _LARGEST_FILE_BYTES) + 1)
            budget -= len(data)
            if budget < 0 or len(data) > _LARGEST_FILE_BYTES:
                raise UnusableInput(
                    f"its dump files have more than {largest:,} bytes, or one has more than "
                    f"{_LARGEST_FILE_BYTES:,}",
                    file=str(archive),
                )
            write_file(places[folder] / path.name, data)
    except (*_DAMAGED, OSError, EOFError, zlib.error, ValueError, RuntimeError) as error:
        # ValueError is also what Arrow raises, RuntimeError what an encrypted member does.
        words = shorten(str(error) or type(error).__name__, 200)
        raise UnusableInput(f"not a whole archive: {words}", file=str(archive)) from None
    return Unpacked({path: name for name, path in places.items()}, tuple(problems))


_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, NotImplementedError)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield the names of all members but folders, with their content; None for a link or device."""
    if archive.name.lower().endswith(".zip"):
        yield from _zip_members(archive)
        return
    with _tar_stream(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as members:
        for member in members:
            if not member.isdir():
                yield member.name, members.extractfile(member) if member.isreg() else None


def _zip_members(path: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            if member.external_attr >> 28 == _ZIP_LINK:
                yield member.filename, None
                continue
            with archive.open(member) as content:
                yield member.filename, content


_ZIP_LINK = 0o12  # the upper four bits of a Unix mode


@contextmanager
def _tar_stream(archive: Path) -> Iterator[IO[bytes]]:
    lower = archive.name.lower()
    kind = "zstd" if lower.endswith(".zst") else None if lower.endswith(".tar") else "gzip"
    with needed("pyarrow").input_stream(str(archive), compression=kind) as stream:
        yield stream
