"""Questions to the tables of a survey, in SQL, by DuckDB: read-only, and of no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fusionscope.errors import UnusableInput, shorten
from fusionscope.survey.needs import needed
from fusionscope.survey.store import Store
from fusionscope.survey.tables import ANALYSED, PARTITIONS, TABLES, schema_of

_TYPES = {
    "string": "VARCHAR",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "list<item: string>": "VARCHAR[]",
    "list<element: string>": "VARCHAR[]",
}
_OF_FOLDERS = {"jaxlib": "VARCHAR", "device": "VARCHAR", "day": "DATE"}
_OF_DUMPS = ("dump", "stamp", "number", "jaxlib_order", *PARTITIONS)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer. ``types`` are DuckDB's names of the types of columns."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def ask(store: Store, question: str) -> Answer:
    """Return the answer to one SELECT. Raises ``UnusableInput`` if it is another statement, reads
    anything but the tables of the survey, or fails.
    """
    with connected(store) as tables:
        return tables.ask(question)


@dataclass(frozen=True, slots=True)
class Tables:
    """An open connection in which the tables are views."""

    connection: Any

    def ask(self, question: str, values: Sequence[object] = ()) -> Answer:
        """Return the answer, with ``values`` for the question marks in it."""
        duckdb = needed("duckdb")
        try:
            statements = self.connection.extract_statements(question)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UnusableInput(
                    "expected one SELECT", hint="the tables are described in docs/survey.md"
                )
            cursor = self.connection.execute(statements[0], list(values))
            described = cursor.description or []
            rows = tuple(cursor.fetchall())
        except duckdb.Error as error:
            first, *_ = str(error).splitlines() or [type(error).__name__]
            raise UnusableInput(f"the question fails: {shorten(first, 300)}") from None
        except (ValueError, OverflowError) as error:  # a date before the year 1
            raise UnusableInput(f"the answer cannot be shown: {error}") from None
        return Answer(
            tuple(str(column[0]) for column in described),
            tuple(str(column[1]) for column in described),
            rows,
        )


@contextmanager
def connected(store: Store) -> Iterator[Tables]:
    """Open the tables of a survey. Raises ``UnusableInput`` if a file cannot be read."""
    duckdb = needed("duckdb")
    connection = duckdb.connect(
        ":memory:",
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False},
    )
    try:
        files = {name: [str(file) for file in store.files(name)] for name in TABLES}
        connection.execute("SET python_enable_replacements = false")
        everything = [file for files_of_table in files.values() for file in files_of_table]
        connection.execute("SET allowed_paths = ?", [everything])
        connection.execute("SET enable_external_access = false")
        connection.execute("CREATE SCHEMA once")
        for name, files_of_table in files.items():
            connection.execute(f"CREATE VIEW once.{name} AS {_select(name, files_of_table)}")
        connection.execute("CREATE VIEW dumps AS FROM once.dumps")
        connection.execute("CREATE VIEW unreadable AS FROM once.unreadable")
        for name in ANALYSED:
            connection.execute(_in_each_dump(name))
        connection.execute("SET lock_configuration = true")
        yield Tables(connection)
    except duckdb.Error as error:
        raise UnusableInput(
            f"the tables cannot be read: {shorten(str(error), 300)}", file=str(store.directory)
        ) from None
    finally:
        connection.close()


def _select(name: str, files: Sequence[str]) -> str:
    """Return the query for a table as it is stored."""
    # Other tables are in the folders of the dump that had a content first, which says nothing.
    folders = _OF_FOLDERS if name == "dumps" else {}
    if files:
        listed = ", ".join(f"'{file.replace(chr(39), chr(39) * 2)}'" for file in files)
        types = ", ".join(f"'{column}': {kind}" for column, kind in folders.items())
        hive = f"true, hive_types = {{{types}}}" if folders else "false"
        return f"SELECT * FROM read_parquet([{listed}], hive_partitioning = {hive})"
    columns = {field.name: _TYPES[str(field.type)] for field in schema_of(TABLES[name])}
    empty = ", ".join(f"NULL::{kind} AS {column}" for column, kind in (columns | folders).items())
    return f"SELECT {empty} WHERE false"


def _in_each_dump(name: str) -> str:
    """Return the view that has each row once for each dump in which its content is."""
    own_fields = [field.name for field in schema_of(TABLES[name])]
    columns = [f"d.{column}" for column in _OF_DUMPS] + [f"o.{column}" for column in own_fields]
    if "module" not in own_fields:
        columns.append("d.module")
    return (
        f"CREATE VIEW {name} AS SELECT {', '.join(columns)} "
        f"FROM once.{name} AS o JOIN once.dumps AS d USING (content)"
    )
