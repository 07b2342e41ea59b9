"""The folder of a survey: tables as Parquet files, written in batches, each whole or not at all.

``TABLE/jaxlib=…/device=…/day=…/BATCH.parquet`` are rows, ``done/BATCH.parquet`` is what they are
about. The latter is written last, so files of a batch without one are those of a run that was
killed: nobody reads them, and the next run removes them. What is done is what these files say;
there is nothing else to keep.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from fusionscope.errors import UnusableInput
from fusionscope.grouping import grouped
from fusionscope.survey.needs import needed
from fusionscope.survey.tables import (
    PARTITIONS,
    TABLES,
    VERSION,
    VERSION_KEY,
    DoneRow,
    DumpRow,
    UnreadableRow,
    table_of,
)
from fusionscope.survey.work import Analysed, Held, Partition, Place
from fusionscope.system.files import is_directory, is_there, make_directory, read_file, write_file

if TYPE_CHECKING:
    import pyarrow

DONE = "done"
_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class Store:
    """The tables in a directory."""

    directory: Path

    def is_empty(self) -> bool:
        return not any(True for _ in _files_below(self.directory / DONE))

    def batches(self) -> list[str]:
        """Return the names of the batches that were written whole, in a fixed order."""
        return [path.stem for path in _files_below(self.directory / DONE)]

    def files(self, table: str) -> list[Path]:
        """Return the files of a table that belong to batches written whole."""
        whole = set(self.batches())
        return [file for file in _files_below(self.directory / table) if file.stem in whole]

    def remove_rest(self) -> None:
        """Remove what a killed run left behind. Raises ``UnusableInput``."""
        whole = set(self.batches())
        leftovers = [
            path
            for table in TABLES
            for path in _files_below(self.directory / table)
            if path.stem not in whole
        ]
        for path in (*leftovers, *self.directory.rglob(f".*{_SUFFIX}.*.part")):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                problem = f"cannot be removed: {error.strerror}"
                raise UnusableInput(problem, file=str(path)) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process write during the block. Raises ``UnusableInput`` if one does."""
        make_directory(self.directory)
        if sys.platform == "win32":
            yield
            return
        import fcntl

        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise UnusableInput("another survey writes it", file=str(self.directory)) from None
        finally:
            os.close(descriptor)

    def done(self) -> Iterator[DoneRow]:
        """Yield what is done. Raises ``UnusableInput`` for a damaged or foreign file."""
        for path in _files_below(self.directory / DONE):
            yield from (DoneRow(**row) for row in _rows(path))


def open_store(directory: Path) -> Store:
    """Return the survey in ``directory``. Raises ``UnusableInput`` if there is none."""
    store = Store(directory)
    if not is_directory(directory):
        problem = "no such directory" if not is_there(directory) else "not a directory"
        raise UnusableInput(f"{problem}, expected that of a survey", file=str(directory))
    if store.is_empty():
        raise UnusableInput(
            "no survey in it",
            file=str(directory),
            hint=f"make one: fusionscope survey PATHS -o {directory}",
        )
    next(store.done(), None)  # of the version that this code reads
    return store


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file. Raises ``UnusableInput`` like ``done``."""
    arrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
    data = read_file(path)
    try:
        table: pyarrow.Table = parquet.ParquetFile(arrow.BufferReader(data)).read()
    except (OSError, ValueError) as error:  # those of Arrow are one or the other
        raise UnusableInput(f"not a whole Parquet file: {error}", file=str(path)) from None
    _check_version(path, table.schema)
    yield from table.to_pylist()


def _check_version(path: Path, schema: pyarrow.Schema) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY, b"none")
    if version != str(VERSION).encode():
        raise UnusableInput(
            f"version {version.decode(errors='replace')} of the tables, expected {VERSION}",
            file=str(path),
            hint="survey the dumps again into another directory",
        )


@dataclass(slots=True)
class Batch:
    """Rows that are written together."""

    rows: int = 0
    _tables: dict[tuple[str, Partition | None], list[pyarrow.Table]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _done: list[DoneRow] = field(default_factory=list)

    def add_held(self, source: str, contents: Held) -> None:
        """Add what a source holds; ``source`` is its key."""
        parts = grouped((partition, row) for row, partition in contents.modules)
        for partition, rows in parts.items():
            self._add("dumps", partition, table_of(DumpRow, rows))
        self._add_unreadable(contents.unreadable)
        self._done.append(DoneRow(source=source, content=None))
        self.rows += 1 + len(contents.modules)

    def add_analysed(self, analysed: Analysed, partition: Partition) -> None:
        for name, table in analysed.tables.items():
            self._add(name, partition, table)
        self._add_unreadable(analysed.unreadable)
        self._done.append(DoneRow(source=None, content=analysed.content))
        self.rows += 1 + sum(table.num_rows for table in analysed.tables.values())

    def _add_unreadable(self, rows: Iterable[UnreadableRow]) -> None:
        if rows := list(rows):
            self._add("unreadable", None, table_of(UnreadableRow, rows))

    def _add(self, name: str, partition: Partition | None, table: pyarrow.Table) -> None:
        self._tables[name, partition].append(table)

    def write(self, store: Store) -> None:
        """Write all rows, and empty the batch. Raises ``UnusableInput``."""
        if not self._done:
            return
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        for (table, partition), parts in self._tables.items():
            _write(store.directory / table / _folder(partition) / name, parts)
        _write(store.directory / DONE / name, [table_of(DoneRow, self._done)])
        self.rows = 0
        self._tables.clear()
        self._done.clear()


def _folder(partition: Partition | None) -> str:
    if partition is None:
        return ""
    return "/".join(f"{name}={quote(getattr(partition, name), safe='')}" for name in PARTITIONS)


def _write(path: Path, parts: list[pyarrow.Table]) -> None:
    arrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.concat_tables(parts), sink, compression="zstd")
    make_directory(path.parent)
    write_file(path, sink.getvalue().to_pybytes())


def _files_below(directory: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(directory.rglob(f"*{_SUFFIX}"))
    return []


def first_places(store: Store) -> list[tuple[Place, str, Partition]]:
    """Return where each content is, in the order of dumps: the first of the places that have it,
    the stamp of its source, and its partition.
    """
    first: dict[str, tuple[Place, str, Partition]] = {}
    for path in store.files("dumps"):
        folders = path.relative_to(store.directory / "dumps").parent.parts
        partition = Partition(*(unquote(folder.partition("=")[2]) for folder in folders))
        for row in _rows(path):
            place = Place(row["content"], row["dump"], row["number"], row["module"])
            earlier = first.get(place.content)
            if earlier is None or _order(place) < _order(earlier[0]):
                first[place.content] = place, row["stamp"], partition
    return sorted(first.values(), key=lambda place_and_row: _order(place_and_row[0]))


def _order(place: Place) -> tuple[str, int]:
    return place.dump, place.number
