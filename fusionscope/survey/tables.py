"""The tables of a survey: one frozen class for each, from whose fields its Arrow schema follows.

docs/survey.md says what each column means. Sizes are bytes and cover all launches of one run; times
are estimates in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from fusionscope.survey.needs import needed

if TYPE_CHECKING:
    import pyarrow

# A change of a table that readers would notice is another version.
VERSION = 1
VERSION_KEY = b"fusionscope.survey"
# What the folders of a table are named after: ``pairs/jaxlib=0.12/device=cpu/day=2026-11-25/``.
PARTITIONS = ("jaxlib", "device", "day")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRow:
    """One module in one dump. Every other row belongs to a ``content``, which modules share."""

    content: str
    dump: str
    stamp: str
    number: int
    module: str
    bytes: int
    jaxlib_order: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    content: str
    module: str
    program: str
    backend: str | None
    arguments: str
    kernels: int
    launches: int
    launches_before: int
    bytes_moved: int
    bytes_before: int
    time_us: float | None
    time_before_us: float | None
    at_best_us: float | None
    limited_by: str | None
    pairs: int
    fused: int
    duplicated: int
    not_fused: int
    gone: int
    refused_bytes: int
    rules: str | None
    rules_checked: bool | None
    plans: int | None
    plans_agreeing: int | None
    fusionscope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    content: str
    kernel: str
    kind: str
    emitter: str
    computation: str
    members: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    bytes_moved: int
    launches: int
    launches_known: bool
    time_us: float | None
    time_source: str | None
    op_name: str | None
    scope: str | None
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    content: str
    producer: str
    producer_opcode: str
    producer_shape: str
    consumer: str
    consumer_opcode: str
    consumer_shape: str
    computation: str
    outcome: str
    kernel: str | None
    stage: str | None
    reason: str | None
    title: str | None
    message: str | None
    evidence: str | None
    decided_by: str | None
    bytes_saved: int
    op_name: str | None
    scope: str | None
    source: str | None
    consumer_source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRow:
    """Refused pairs that look alike."""

    content: str
    reason: str
    title: str | None
    evidence: str | None
    decided_by: str | None
    producer: str
    producer_opcode: str
    consumer: str
    consumer_opcode: str
    pairs: int
    bytes_saved: int
    scope: str | None
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionRow:
    content: str
    kind: str
    change: str
    title: str
    evidence: str
    helps: bool
    pairs: int
    launches_saved: int | None
    bytes_saved: int | None
    time_saved_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    content: str
    total_bytes: int
    parameters: int
    donated: int
    outputs: int
    temporaries: int
    constants: int
    thread_local: int
    fragmentation: int
    peak_bytes: int | None
    peak_instruction: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisoryRow:
    """A known fault of the compiler that a module shows, or may show."""

    content: str
    fault: str
    title: str
    thread: str
    fixed_in: str
    workaround: str
    is_certain: bool
    kernels: tuple[str, ...]
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRow:
    """The comparison of one run of a pass; the rules of TPUs, which are inferred, are one pass."""

    content: str
    pass_name: str
    rules: str
    identical: bool | None
    same_kernels: bool | None
    pairs: int
    pairs_agreeing: int
    decisions: int
    decisions_agreeing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRow:
    """What could not be read: ``content`` is null for a whole dump, and for a file of one."""

    content: str | None
    dump: str
    stamp: str
    module: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRow:
    """A dump (``source``) that was listed, or a content that was analysed."""

    source: str | None
    content: str | None


Row = (
    DumpRow
    | ModuleRow
    | KernelRow
    | PairRow
    | RefusalRow
    | SuggestionRow
    | MemoryRow
    | AdvisoryRow
    | VerifyRow
    | UnreadableRow
    | DoneRow
)

# By content: each row counts once for every dump that has the content.
ANALYSED: dict[str, type[Row]] = {
    "modules": ModuleRow,
    "kernels": KernelRow,
    "pairs": PairRow,
    "refusals": RefusalRow,
    "suggestions": SuggestionRow,
    "memory": MemoryRow,
    "advisories": AdvisoryRow,
    "verify": VerifyRow,
}
TABLES: dict[str, type[Row]] = {"dumps": DumpRow, **ANALYSED, "unreadable": UnreadableRow}


def schema_of(kind: type[Row]) -> pyarrow.Schema:
    """Return the Arrow schema of a class of rows, without the columns that folders name."""
    arrow = needed("pyarrow")

    types: dict[Any, pyarrow.DataType] = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        tuple[str, ...]: arrow.list_(arrow.string()),
    }
    hints = get_type_hints(kind)
    columns = []
    for field in fields(kind):
        choices = get_args(hints[field.name]) if NoneType in get_args(hints[field.name]) else ()
        (plain,) = [choice for choice in choices if choice is not NoneType] or [hints[field.name]]
        columns.append(arrow.field(field.name, types[plain], nullable=bool(choices)))
    return arrow.schema(columns, {VERSION_KEY: str(VERSION).encode()})


def table_of(kind: type[Row], rows: Iterable[Row]) -> pyarrow.Table:
    """Return rows of one class as an Arrow table. Text that is not Unicode gets replacement
    characters. Raises ``OverflowError`` or an ``ArrowInvalid`` if a number has more than 64 bits.
    """
    arrow = needed("pyarrow")
    rows = list(rows)
    schema = schema_of(kind)
    columns = []
    for column in schema:
        values = [getattr(row, column.name) for row in rows]
        try:
            columns.append(arrow.array(values, column.type))
        except UnicodeEncodeError:
            columns.append(arrow.array([as_unicode(value) for value in values], column.type))
    return arrow.Table.from_arrays(columns, schema=schema)


def as_unicode(value: Any) -> Any:
    """Return a text, or several, with replacement characters for what is not Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [as_unicode(element) for element in value] if isinstance(value, tuple) else value
