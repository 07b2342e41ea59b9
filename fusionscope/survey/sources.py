"""Finds dumps behind addresses, and brings them to this machine.

An address is whatever fsspec knows: a path, a glob, a URL of an object store. Credentials and
endpoints are those of the environment, as for any other program that uses fsspec.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fusionscope.dump.names import read_name
from fusionscope.errors import UnusableInput, shorten
from fusionscope.survey.archives import LARGEST_BYTES, is_archive, unpack
from fusionscope.survey.needs import needed
from fusionscope.survey.tables import as_unicode
from fusionscope.system.files import is_directory

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem as FileSystem

Info = dict[str, Any]  # what a file system tells of a file

_UNKNOWN_DAY = "1970-01-01"
_DATE = re.compile(r"(?<!\d)(20\d\d)(-?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")
# Under which a file system tells when a file was written, and what changes with its content.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
_TAGS = ("ETag", "etag", "md5Hash", "checksum", *_TIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A folder with dump files, an archive, or one file.

    ``files`` are the paths of its files within their file system, ``bytes`` their sizes together.
    ``stamp`` changes when a file does, as far as the file system tells. ``day`` is the date in the
    address or, without one, the day (UTC) on which the newest file was written.
    """

    address: str
    files: tuple[str, ...]
    is_folder: bool
    bytes: int
    stamp: str
    day: str

    @property
    def key(self) -> str:
        """Identify this dump as it is now."""
        return f"{self.stamp} {as_unicode(self.address)}"


@dataclass(frozen=True, slots=True)
class AtHand:
    """The dumps of a source on this machine: directories, or a file, each with its address."""

    dumps: dict[Path, str]
    problems: tuple[str, ...] = ()


def find_sources(addresses: Iterable[str]) -> tuple[list[Source], dict[str, str]]:
    """Return all dumps behind ``addresses``, each once, in the order of their own addresses; and by
    address what could not be listed, and why. Raises ``UnusableInput`` if fsspec is not installed.
    """
    sources_by_address: dict[str, Source] = {}
    problems: dict[str, str] = {}
    core = needed("fsspec").core
    for address in addresses:
        try:
            sources = {source.address: source for source in _find(core, address, problems)}
        except Exception as error:  # each file system has errors of its own
            problems[address] = f"cannot be listed: {_words(error)}"
            continue
        if not sources:
            problems[address] = "no dump there"
        sources_by_address |= sources
    return sorted(sources_by_address.values(), key=lambda source: source.address), problems


def _find(core: Any, address: str, problems: dict[str, str]) -> Iterator[Source]:
    system, path = core.url_to_fs(address)
    is_glob = any(name in address for name in "*?[") and not system.exists(path)
    listed: dict[str, Info] = {}
    for place in map(str, system.glob(path)) if is_glob else [path]:
        listed |= _list(system, place, problems)
    if listed.keys() == {path}:  # a file that was named is a dump, whatever its name
        yield _source(system, path, [listed[path]], is_folder=False)
        return
    folders: dict[str, list[Info]] = defaultdict(list)
    for name, info in listed.items():
        if is_archive(name):
            yield _source(system, name, [info], is_folder=False)
        elif _is_dump_file(name):
            folders[name.rpartition("/")[0]].append(info)
    for folder, files in folders.items():
        yield _source(system, folder, files, is_folder=True)


def _list(system: FileSystem, path: str, problems: dict[str, str]) -> dict[str, Info]:
    """Return all files below ``path``, or the one that it is, with what is known about them. Links
    to folders are not followed: they may lead in circles.
    """
    if not _is_local(system) or not is_directory(Path(path)):
        return dict(system.find(path, detail=True)) or {path: system.info(path)}

    def tell(error: OSError) -> None:
        problems[str(error.filename)] = f"cannot be listed: {_words(error)}"

    listed: dict[str, Info] = {}
    for folder, _, names in os.walk(path, onerror=tell):
        for name in filter(_is_of_interest, names):
            with suppress(OSError):  # gone meanwhile
                listed[f"{folder}/{name}"] = system.info(f"{folder}/{name}")
    return listed


def _is_of_interest(path: str) -> bool:
    return is_archive(path) or _is_dump_file(path)


def _words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or directory"
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return shorten(words or type(error).__name__, 200)


def _is_dump_file(path: str) -> bool:
    return read_name(PurePosixPath(path).name.removesuffix(".gz")) is not None


def _source(system: FileSystem, path: str, files: list[Info], *, is_folder: bool) -> Source:
    address = path if _is_local(system) else str(system.unstrip_protocol(path))
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda info: str(info["name"])):
        tags = [str(file.get(tag)) for tag in _TAGS]
        digest.update(repr((str(file["name"]), file.get("size"), tags)).encode("utf-8", "replace"))
    return Source(
        address=address,
        files=tuple(sorted(str(file["name"]) for file in files)),
        is_folder=is_folder,
        bytes=sum(int(file.get("size") or 0) for file in files),
        stamp=digest.hexdigest()[:16],
        day=_day_in(address) or max(map(_day_of, files)),
    )


def _is_local(system: FileSystem) -> bool:
    return "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))


def _day_in(address: str) -> str | None:
    """Return the last date in an address, as in ``runs/2026-11-25/host-17``."""
    for year, _, month, day in reversed(_DATE.findall(address)):
        try:
            return date(int(year), int(month), int(day)).isoformat()
        except ValueError:  # the 31st of February
            continue
    return None


def _day_of(info: Info) -> str:
    for name in _TIMES:
        when = info.get(name)
        if isinstance(when, int | float):
            return datetime.fromtimestamp(when, UTC).date().isoformat()
        if isinstance(when, datetime):
            return when.astimezone(UTC).date().isoformat()
        if isinstance(when, str) and re.match(r"\d{4}-\d\d-\d\d", when):
            return when[:10]
    return _UNKNOWN_DAY


@contextmanager
def at_hand(source: Source) -> Iterator[AtHand]:
    """Bring the dumps of a source to this machine, for the block. Raises ``UnusableInput``."""
    system, _ = needed("fsspec").core.url_to_fs(source.address)
    is_local = _is_local(system)
    if is_local and not is_archive(source.address):
        yield AtHand({Path(source.address): source.address})
        return
    with TemporaryDirectory(prefix="fusionscope-survey-") as directory:
        try:
            yield _bring(source, system, Path(directory), is_local=is_local)
        except UnusableInput as error:
            raise UnusableInput(error.problem.replace(directory, "")) from None


def _bring(source: Source, system: FileSystem, directory: Path, *, is_local: bool) -> AtHand:
    if is_archive(source.address):
        if source.bytes > LARGEST_BYTES:
            raise UnusableInput(f"an archive of more than {LARGEST_BYTES:,} bytes")
        path = Path(source.address)
        if not is_local:
            path = directory / PurePosixPath(source.address).name
            _download(system, {source.files[0]: path})
        unpacked = unpack(path, directory)
        dumps = {
            folder: source.address if name == "." else f"{source.address}!{name}"
            for folder, name in unpacked.folders.items()
        }
        if not dumps:
            raise UnusableInput("no dump file in the archive")
        return AtHand(dumps, unpacked.problems)
    folder = directory / "0"
    folder.mkdir()
    files = {name: folder / PurePosixPath(name).name for name in source.files}
    _download(system, files)
    return AtHand({folder if source.is_folder else files[source.files[0]]: source.address})


def _download(system: FileSystem, files: dict[str, Path]) -> None:
    try:
        system.get(list(files), [str(path) for path in files.values()])
    except Exception as error:  # each file system has errors of its own
        raise UnusableInput(f"cannot be read: {_words(error)}") from None
