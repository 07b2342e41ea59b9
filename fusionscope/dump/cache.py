"""Keeps results about the modules of a dump between runs."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from fusionscope.dump.directory import Dump, DumpedModule
from fusionscope.dump.files import DumpFile
from fusionscope.dump.uses import Stamp, Uses, digest_of, stamp_of
from fusionscope.errors import UnusableInput
from fusionscope.system.cache import Cache, find_cache
from fusionscope.system.kept import code_digest

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _UsedFile:
    """``number`` is the place of the file among those of the dump."""

    number: int
    stamp: Stamp | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Entry:
    """``value`` is the result, encoded."""

    files: tuple[_UsedFile, ...]
    unknown_opcodes: tuple[str, ...]
    value: bytes


def user_cache() -> Cache | None:
    """Return the cache of results, or None for a user without a home."""
    return find_cache("results")


class DumpCache:
    """Results about one dump.

    A result is looked up by the names and sizes of all files of the dump. It is used if the files
    that it was made from have the content that they had then. A file with the same size, times and
    inode is not read for that.
    """

    def __init__(self, dump: Dump, entries: Cache | None) -> None:
        """``entries`` None keeps nothing."""
        self._dump = dump
        self._entries = entries
        self._stamps: dict[DumpFile, Stamp | None] = {}
        self._digests: dict[DumpFile, bytes] = {}
        self._numbers = {id(module): number for number, module in enumerate(dump.modules)}
        self._listing = ""
        if entries is not None:
            files = [(file.name, str(file.path), file.start, file.size) for file in dump.files]
            listing = code_digest(), sys.version, str(dump.path), files, dump.unread()
            self._listing = _sha256(repr(listing))  # of thousands of files, for each module

    @property
    def entries(self) -> Cache | None:
        """Where results are kept that depend on no dump."""
        return self._entries

    def __reduce__(self) -> tuple[type[DumpCache], tuple[Dump, Cache | None]]:
        return DumpCache, (self._dump, self._entries)

    def get(
        self,
        module: DumpedModule,
        kind: type[Value],
        options: tuple[object, ...],
        make: Callable[[], Value],
    ) -> Value:
        """Return the result of ``make`` about a module, or that of an earlier run.

        It has to be data of type ``kind``, which depends on nothing but the files of the dump and
        on ``options``, as their ``repr`` tells them apart. Raises what ``make`` raises.
        """
        return self.get_all((module,), kind, options, make)

    def get_all(
        self,
        modules: Sequence[DumpedModule],
        kind: type[Value],
        options: tuple[object, ...],
        make: Callable[[], Value],
    ) -> Value:
        """Like ``get``, for one result about several modules."""
        if self._entries is None:
            return make()
        numbers = [self._numbers[id(module)] for module in modules]
        name = _sha256(repr((self._listing, numbers, kind.__qualname__, options)))
        entry = self._find(self._entries, name, kind)
        if entry is not None:
            return entry
        with modules[0].reader.recording() as uses:
            value = make()
        if uses.is_repeatable:
            self._keep(self._entries, name, uses, value)
        return value

    def _find(self, entries: Cache, name: str, kind: type[Value]) -> Value | None:
        import msgspec  # not without a cache

        content = entries.read(name)
        if content is None:
            return None
        try:
            entry = msgspec.msgpack.decode(content, type=_Entry)
            files = self._with_stamps(entry.files)
            if files is None:
                return None
            value = msgspec.msgpack.decode(entry.value, type=kind)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        self._dump.add_unknown_opcodes(entry.unknown_opcodes)
        if files != entry.files:
            entries.write(name, msgspec.msgpack.encode(replace(entry, files=files)))
        return value

    def _with_stamps(self, files: tuple[_UsedFile, ...]) -> tuple[_UsedFile, ...] | None:
        """Return the files with their present stamps, or None if the content of one differs."""
        now = []
        for stamped in files:
            if not 0 <= stamped.number < len(self._dump.files):
                return None
            file = self._dump.files[stamped.number]
            if file not in self._stamps:
                self._stamps[file] = stamp_of(file.path)
            stamp = self._stamps[file]
            if (stamp is None or stamp != stamped.stamp) and self._digest(file) != stamped.digest:
                return None
            now.append(replace(stamped, stamp=stamp))
        return tuple(now)

    def _digest(self, file: DumpFile) -> bytes:
        """Return the digest of the content, empty if it cannot be read."""
        if file not in self._digests:
            try:
                self._digests[file] = digest_of(file.read())
            except UnusableInput:
                self._digests[file] = b""
        return self._digests[file]

    @cached_property
    def _places(self) -> Mapping[DumpFile, int]:
        """The places of the files among those of the dump."""
        return {file: place for place, file in enumerate(self._dump.files)}

    def _keep(self, entries: Cache, name: str, uses: Uses, value: object) -> None:
        import msgspec

        files = (
            _UsedFile(self._places[file], read.stamp, read.digest)
            for file, read in uses.files.items()
        )
        try:
            encoded = msgspec.msgpack.encode(value)
        except (ValueError, OverflowError):  # half of a character, a number of over 64 bits
            return
        entry = _Entry(tuple(files), tuple(sorted(uses.unknown_opcodes)), encoded)
        entries.write(name, msgspec.msgpack.encode(entry))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
