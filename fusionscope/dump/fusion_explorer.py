"""The compiler's Fusion Explorer record: every decision in order, with both names and the reason.

``--xla_dump_fusion_visualization`` writes one file per computation. From 0.11 on it is
``_fusion.pyz``, a zip that holds the database ``fusions.db``; before, ``_fusion.html``, a page with
the frames in it as JSON. The labels are the same in both, but older versions leave decisions out:
in 0.10.2 and 0.4.35 PriorityFusion records only what it fuses. The graphs are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from fusionscope.errors import UnusableInput


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the record, as written: the graph that it shows, and its label."""

    index: int
    graph: int
    label: str
    highlight: str


class Kind(StrEnum):
    ABOUT_TO_FUSE = "about_to_fuse"
    ABOUT_TO_FUSE_SIBLINGS = "about_to_fuse_siblings"
    ABOUT_TO_FUSE_MULTI_OUTPUT = "about_to_fuse_multi_output"
    FUSED = "fused"
    REFUSED = "refused"
    REFUSED_TRITON = "refused_triton"  # not final: the other emitters are asked next
    REFUSED_SIBLINGS = "refused_siblings"
    REFUSED_MULTI_OUTPUT = "refused_multi_output"
    INELIGIBLE = "ineligible"  # for the producer and all of its consumers
    REJECTED = "rejected"  # for the producer and all of its consumers: no benefit
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """The decision in the label of the frame with the same index.

    ``consumer`` is None if the decision is about all consumers of the producer. In ``fused`` it is
    the new fusion, and ``producer`` is None if the pass records no more than that. Siblings are
    named in the order of the label. ``reason`` is verbatim and may be empty; for ``other`` it is
    the whole label. ``pass_name`` is the pass as labels name it.
    """

    kind: Kind
    pass_name: str | None
    producer: str | None
    consumer: str | None
    reason: str
    may_duplicate: bool | None


@dataclass(frozen=True, slots=True)
class FusionExplorerRecord:
    """The frames and decisions of a record. ``decisions[i]`` is the decision in ``frames[i]``."""

    frames: tuple[Frame, ...]
    decisions: tuple[RecordedDecision, ...]


_INSTRUCTION_FUSION = "InstructionFusion"
_PRIORITY_FUSION = "PriorityFusion"
_FUSION_MERGER = "FusionMerger"
_MULTI_OUTPUT = "multi-output fusion"

# Every form of label, with the pass that writes it; {pass} is read from the label instead. Found in
# records of 0.4.35, 0.10.2, 0.11.2 and 0.12.0.1, for CPU, GPU and TPU.
_FORMS = (
    (Kind.FUSED, "Fused {producer} into {consumer} inside {pass}", None),
    (Kind.ABOUT_TO_FUSE, "About to fuse {producer} into {consumer} inside {pass}", None),
    (
        Kind.REFUSED_TRITON,
        "Cannot fuse producer {producer} with consumer {consumer} using Triton "
        "(will try fallback): {reason}",
        _PRIORITY_FUSION,
    ),
    (
        Kind.REFUSED,
        "Cannot fuse producer {producer} with consumer {consumer}: {reason}",
        _PRIORITY_FUSION,
    ),
    (Kind.INELIGIBLE, "Ineligible {producer}: {reason}", _PRIORITY_FUSION),
    (Kind.REJECTED, "Rejected {producer}: {reason}", _PRIORITY_FUSION),
    (Kind.REFUSED, "Not fusing {producer} into {consumer} as {reason}", _INSTRUCTION_FUSION),
    (
        Kind.ABOUT_TO_FUSE_MULTI_OUTPUT,
        "About to MOF-fuse {producer} into {consumer} inside {pass}",
        None,
    ),
    (
        Kind.INELIGIBLE,
        "Not fusing fusion {producer} into all of its users due to: {reason}",
        _FUSION_MERGER,
    ),
    (
        Kind.ABOUT_TO_FUSE_SIBLINGS,
        "About to fuse sibling {producer} into sibling {consumer} inside {pass}",
        None,
    ),
    (
        Kind.ABOUT_TO_FUSE_MULTI_OUTPUT,
        "About to fuse producer {producer} into consumer {consumer} inside {pass}",
        None,
    ),
    (Kind.FUSED, "Fused into {consumer} inside {pass}", None),
    (
        Kind.REFUSED_SIBLINGS,
        "Not fusing siblings {producer} and {consumer} due to: {reason}",
        _MULTI_OUTPUT,
    ),
    (
        Kind.REFUSED_MULTI_OUTPUT,
        "Not considering fusion of producer {producer} into consumer {consumer} due to: {reason}",
        _MULTI_OUTPUT,
    ),
)
_SLOTS = {
    # Old versions begin some names with two bars.
    "{producer}": r"\|{1,2}(?P<producer>[^|]*)\|",
    "{consumer}": r"\|{1,2}(?P<consumer>[^|]*)\|",
    "{reason}": r"(?P<reason>.*)",
    "{pass}": r"(?P<pass>.+?)(?: with may_duplicate=(?P<may_duplicate>[01]))?",
}


@cache
def _form_pattern(form: str) -> re.Pattern[str]:
    pieces = re.split(r"(\{\w+\})", form)
    return re.compile("".join(_SLOTS.get(piece, re.escape(piece)) for piece in pieces), re.DOTALL)


# A database grows little when unzipped, since its graphs are already compressed: 14-fold at most in
# records of one frame, 1.1-fold in large ones.
_ALWAYS_ACCEPTED_BYTES = 64 << 20
_LARGEST_GROWTH = 8
_LONGEST_LABEL = 1 << 20


def read_fusion_explorer(data: bytes, file: str) -> FusionExplorerRecord:
    """Read a record of either form.

    Raises ``UnusableInput`` if it is neither, is damaged, or unpacks to more than a record can
    hold.
    """
    # The zip starts after the line that makes the file executable.
    is_zip = data[:2] in (b"#!", b"PK")
    frames = _frames_of_database(data, file) if is_zip else _frames_of_page(data, file)
    return FusionExplorerRecord(frames, tuple(decision_of(frame.label) for frame in frames))


_ABOUT = frozenset(
    {Kind.ABOUT_TO_FUSE, Kind.ABOUT_TO_FUSE_SIBLINGS, Kind.ABOUT_TO_FUSE_MULTI_OUTPUT}
)


def with_fused(
    decisions: Iterable[RecordedDecision],
) -> Iterator[tuple[RecordedDecision, tuple[str, str] | None]]:
    """Yield each decision and, for a new fusion, its producer and consumer: ``fused`` itself names
    only the result, so the decision before it names them.
    """
    about: tuple[str, str] | None = None
    for decision in decisions:
        producer, consumer = decision.producer, decision.consumer
        fused: tuple[str, str] | None = None
        if decision.kind in _ABOUT and producer is not None and consumer is not None:
            about = producer, consumer
        elif decision.kind is Kind.FUSED and consumer is not None:
            fused, about = about, None
        yield decision, fused


def decision_of(label: str) -> RecordedDecision:
    """Return the decision in one label; ``Kind.OTHER`` if it has no known form."""
    for kind, form, pass_name in _FORMS:
        if match := _form_pattern(form).fullmatch(label):
            groups = match.groupdict()
            may_duplicate = groups.get("may_duplicate")
            return RecordedDecision(
                kind=kind,
                pass_name=groups.get("pass") or pass_name,
                producer=groups.get("producer"),
                consumer=groups.get("consumer"),
                reason=groups.get("reason") or "",
                may_duplicate=None if may_duplicate is None else may_duplicate == "1",
            )
    return RecordedDecision(
        kind=Kind.OTHER,
        pass_name=None,
        producer=None,
        consumer=None,
        reason=label,
        may_duplicate=None,
    )


def _frames_of_page(data: bytes, file: str) -> tuple[Frame, ...]:
    import json

    start = re.search(rb"frames\s*=\s*(?=\[)", data)
    if start is None:
        raise _unusable("no list of frames in it", file)
    try:
        entries, _ = json.JSONDecoder().raw_decode(data[start.end() :].decode())
    except (ValueError, RecursionError):
        raise _unusable("its list of frames is damaged", file) from None
    frames = []
    for index, entry in enumerate(entries):
        match entry:
            case [int(graph), str(label), str(highlight)]:
                frames.append(Frame(index, graph, label, highlight))
            case _:
                raise _unusable(f"frame {index} is not [graph, label, highlight]", file)
    return tuple(frames)


def _frames_of_database(data: bytes, file: str) -> tuple[Frame, ...]:
    import sqlite3
    from contextlib import closing

    database = _database(data, file)
    size = len(database)
    frames: list[Frame] = []
    characters = 0
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_LABEL)
        try:
            connection.deserialize(database)
            del database  # it was copied, and may be large
            # A view, or a table made of expressions, could compute forever: only stored columns.
            stored = connection.execute(
                "SELECT rootpage > 0 AND type = 'table' FROM sqlite_master WHERE name = 'frames'"
            ).fetchone()
            columns = {row[1] for row in connection.execute("PRAGMA table_info(frames)")}
            if stored != (1,) or not columns >= {"id", "label", "graph_id", "to_highlight"}:
                raise _unusable("its database has no table of frames", file)
            for row in connection.execute("SELECT id, graph_id, label, to_highlight FROM frames"):
                match row:
                    case (int(index), int(graph), str(label), str(highlight)):
                        characters += len(label) + len(highlight)
                    case _:
                        raise _unusable("a frame is not made of numbers and texts", file)
                # Damaged pages can refer to each other, and give rows without end.
                if characters > size or (frames and index <= frames[-1].index):
                    raise _unusable("its database gives the same frame twice", file)
                frames.append(Frame(index, graph, label, highlight))
        except (sqlite3.Error, ValueError, OverflowError):
            raise _unusable("its database is damaged", file) from None
    return tuple(frames)


def _database(data: bytes, file: str) -> bytes:
    import zipfile
    import zlib
    from io import BytesIO

    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entry = archive.getinfo("fusions.db")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _unusable("its database is packed in another way than by XLA", file)
            if entry.file_size > max(_ALWAYS_ACCEPTED_BYTES, _LARGEST_GROWTH * len(data)):
                raise _unusable(f"it unpacks from {len(data)} to {entry.file_size} bytes", file)
            with archive.open(entry) as content:
                # With a given size, zipfile unpacks no more than that, whatever the data holds.
                database = content.read(entry.file_size)
    except KeyError:
        raise _unusable("no fusions.db in it", file) from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        OSError,
        RuntimeError,
        ValueError,
    ):
        raise _unusable("its zip is damaged", file) from None
    if not database:  # sqlite3 reports a lack of memory for it
        raise _unusable("its database is empty", file)
    return database


def _unusable(problem: str, file: str) -> UnusableInput:
    return UnusableInput(
        f"{problem}, expected a Fusion Explorer record",
        file=file,
        hint="dump it again with --xla_dump_fusion_visualization",
    )
