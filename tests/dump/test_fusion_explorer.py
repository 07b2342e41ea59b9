import io
import json
import re
import sqlite3
import zipfile

import pytest

from fusionscope.dump.fusion_explorer import (
    Kind,
    RecordedDecision,
    decision_of,
    read_fusion_explorer,
)
from fusionscope.errors import UnusableInput

PAGE = "a100_0.4.35_legacy/main.40.module_0001.jit__lambda_._fusion.html"
ARCHIVE = "h100/main.3.module_0001.jit_f._fusion.pyz"


def records(data):
    files = sorted(data.glob("*/*._fusion.*"))
    assert {file.suffix for file in files} == {".pyz", ".html"}
    return [(file, read_fusion_explorer(file.read_bytes(), file.name)) for file in files]


def database_of(archive):
    return zipfile.ZipFile(io.BytesIO(archive)).read("fusions.db")


def archive_of(database, method=zipfile.ZIP_DEFLATED):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as file:
        file.writestr("fusions.db", database)
    return archive.getvalue()


def database_with(*statements):
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    return connection.serialize()


TABLE = (
    "CREATE TABLE frames (id INTEGER PRIMARY KEY, label TEXT, graph_id INTEGER, to_highlight TEXT)"
)


def label_of(kind, pass_name, producer, consumer, reason, may_duplicate):
    return RecordedDecision(
        kind=kind,
        pass_name=pass_name,
        producer=producer,
        consumer=consumer,
        reason=reason,
        may_duplicate=may_duplicate,
    )


LABELS = {
    "Not fusing |exp.1| into |broadcast_maximum_fusion| as expensive producer would be duplicated"
    " ; multi-output fusion not supported by this pass": label_of(
        Kind.REFUSED,
        "InstructionFusion",
        "exp.1",
        "broadcast_maximum_fusion",
        "expensive producer would be duplicated ; multi-output fusion not supported by this pass",
        None,
    ),
    "About to fuse |mul.2| into |mul.3| inside InstructionFusion with may_duplicate=1": label_of(
        Kind.ABOUT_TO_FUSE, "InstructionFusion", "mul.2", "mul.3", "", True
    ),
    "Fused |mul.2| into |fusion.1| inside InstructionFusion with may_duplicate=0": label_of(
        Kind.FUSED, "InstructionFusion", "mul.2", "fusion.1", "", False
    ),
    "About to MOF-fuse |a| into |b| inside InstructionFusion with may_duplicate=1": label_of(
        Kind.ABOUT_TO_FUSE_MULTI_OUTPUT, "InstructionFusion", "a", "b", "", True
    ),
    "Cannot fuse producer |a.0| with consumer |tuple|: the consumer is not fusible": label_of(
        Kind.REFUSED, "PriorityFusion", "a.0", "tuple", "the consumer is not fusible", None
    ),
    "Cannot fuse producer |a| with consumer |b| using Triton (will try fallback): "
    "triton heroless fusion is not enabled": label_of(
        Kind.REFUSED_TRITON,
        "PriorityFusion",
        "a",
        "b",
        "triton heroless fusion is not enabled",
        None,
    ),
    "Ineligible |a|: the consumer is not fusible": label_of(
        Kind.INELIGIBLE, "PriorityFusion", "a", None, "the consumer is not fusible", None
    ),
    "Rejected |tanh.1.0|: Negative benefit (-16.61125us)": label_of(
        Kind.REJECTED, "PriorityFusion", "tanh.1.0", None, "Negative benefit (-16.61125us)", None
    ),
    "About to fuse |a| into |b| inside PriorityFusion": label_of(
        Kind.ABOUT_TO_FUSE, "PriorityFusion", "a", "b", "", None
    ),
    "Not fusing siblings |a| and |b| due to: fusion.11 and fusion.9 are connected": label_of(
        Kind.REFUSED_SIBLINGS,
        "multi-output fusion",
        "a",
        "b",
        "fusion.11 and fusion.9 are connected",
        None,
    ),
    "Not considering fusion of producer |a| into consumer |b| due to: different loop shapes": (
        label_of(
            Kind.REFUSED_MULTI_OUTPUT,
            "multi-output fusion",
            "a",
            "b",
            "different loop shapes",
            None,
        )
    ),
    "About to fuse sibling |a| into sibling |b| inside multi-output fusion": label_of(
        Kind.ABOUT_TO_FUSE_SIBLINGS, "multi-output fusion", "a", "b", "", None
    ),
    "About to fuse producer |a| into consumer |b| inside multi-output fusion": label_of(
        Kind.ABOUT_TO_FUSE_MULTI_OUTPUT, "multi-output fusion", "a", "b", "", None
    ),
    "Fused into |b| inside multi-output fusion": label_of(
        Kind.FUSED, "multi-output fusion", None, "b", "", None
    ),
    "Not fusing fusion |a| into all of its users due to: not a loop fusion": label_of(
        Kind.INELIGIBLE, "FusionMerger", "a", None, "not a loop fusion", None
    ),
    # 0.4.23 wrote two bars before the producer.
    "About to fuse producer ||fusion.2| into consumer |b| inside multi-output fusion": label_of(
        Kind.ABOUT_TO_FUSE_MULTI_OUTPUT, "multi-output fusion", "fusion.2", "b", "", None
    ),
    "Something new about |a| and |b|": label_of(
        Kind.OTHER, None, None, None, "Something new about |a| and |b|", None
    ),
}


@pytest.mark.parametrize("label", LABELS)
def test_labels(label):
    assert decision_of(label) == LABELS[label]


def test_frames_are_those_in_the_file(data):
    for file, record in records(data):
        actual = [(frame.graph, frame.label, frame.highlight) for frame in record.frames]
        if file.suffix == ".html":
            line = re.search(r"const frames = (.*);\n", file.read_text())[1]
            assert actual == [tuple(entry) for entry in json.loads(line)]
        else:
            connection = sqlite3.connect(":memory:")
            connection.deserialize(database_of(file.read_bytes()))
            rows = "SELECT graph_id, label, to_highlight FROM frames ORDER BY id"
            assert actual == connection.execute(rows).fetchall()


def test_no_label_of_a_real_record_is_unrecognised(data):
    for file, record in records(data):
        assert all(decision.kind is not Kind.OTHER for decision in record.decisions), file
        assert len(record.decisions) == len(record.frames) > 0


def test_decisions_lose_nothing_of_their_labels(data):
    for _, record in records(data):
        for frame, decision in zip(record.frames, record.decisions, strict=True):
            names = [name for name in (decision.producer, decision.consumer) if name is not None]
            assert re.findall(r"\|([^|]+)\|", frame.label) == names
            assert frame.label.endswith(decision.reason)
            assert bool(decision.reason) == (decision.kind not in FUSING)
            assert ("may_duplicate" in frame.label) == (decision.may_duplicate is not None)


FUSING = {
    Kind.FUSED,
    Kind.ABOUT_TO_FUSE,
    Kind.ABOUT_TO_FUSE_SIBLINGS,
    Kind.ABOUT_TO_FUSE_MULTI_OUTPUT,
}


def test_what_is_fused_was_about_to_be(data):
    for _, record in records(data):
        fusing = [decision for decision in record.decisions if decision.kind in FUSING]
        before, after = fusing[::2], fusing[1::2]
        assert all(decision.kind is not Kind.FUSED for decision in before)
        assert all(decision.kind is Kind.FUSED for decision in after)
        for first, second in zip(before, after, strict=True):
            assert first.pass_name == second.pass_name
            assert second.producer in (first.producer, None)


def test_every_backend_and_pass_is_there(data):
    kinds = {decision.kind for _, record in records(data) for decision in record.decisions}
    assert kinds == set(Kind) - {Kind.OTHER}
    passes = {decision.pass_name for _, record in records(data) for decision in record.decisions}
    assert passes == {
        "InstructionFusion",
        "PriorityFusion",
        "FusionMerger",
        "multi-output fusion",
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no list of frames"),
        (b"\x00\xff" * 100, "no list of frames"),
        (b"const frames = [[0, 'a', 'b']];", "damaged"),
        (b'const frames = [[0, "a"]];', "frame 0 is not"),
        (b'const frames = [[0, "\xff", ""]];', "damaged"),
        (b"const frames = " + b"[" * 100_000, "damaged"),
        (b"PK\x03\x04 and no more", "zip is damaged"),
        (archive_of(b"no database"), "database is damaged"),
        (archive_of(b""), "database is empty"),
        (archive_of(database_with("CREATE TABLE other (id)")), "no table of frames"),
        (archive_of(database_with("CREATE TABLE frames (id)")), "no table of frames"),
        (archive_of(database_with(TABLE), zipfile.ZIP_LZMA), "packed in another way"),
        (
            archive_of(database_with(TABLE, "INSERT INTO frames VALUES (1, NULL, 1, '')")),
            "not made of numbers and texts",
        ),
        (
            archive_of(
                database_with(
                    TABLE, "INSERT INTO frames VALUES (1, printf('%.*c', 2000000, 'x'), 1, '')"
                )
            ),
            "database is damaged",
        ),
        (
            archive_of(
                database_with(
                    "CREATE VIEW frames AS WITH RECURSIVE endless(id) AS (SELECT 1 UNION ALL "
                    "SELECT id + 1 FROM endless) SELECT id, 'x' AS label, 1 AS graph_id, "
                    "'' AS to_highlight FROM endless"
                )
            ),
            "no table of frames",
        ),
        (
            archive_of(
                database_with(
                    "CREATE TABLE frames (id INTEGER PRIMARY KEY, graph_id INTEGER, "
                    "to_highlight TEXT, label TEXT AS (printf('%.*c', 900000, 'x')))"
                )
            ),
            "no table of frames",
        ),
        (archive_of(bytes(65 << 20)), "it unpacks from"),
    ],
)
def test_what_is_no_record_is_refused(content, problem):
    with pytest.raises(UnusableInput, match=problem):
        read_fusion_explorer(content, "some._fusion.pyz")


def test_a_zip_that_lies_about_its_size_is_not_unpacked_whole():
    archive = bytearray(archive_of(bytes(1 << 20)))
    true_size, false_size = (1 << 20).to_bytes(4, "little"), (4096).to_bytes(4, "little")
    assert archive.count(true_size) == 2
    with pytest.raises(UnusableInput, match="zip is damaged"):
        read_fusion_explorer(bytes(archive.replace(true_size, false_size)), "f")


def test_pages_that_point_at_each_other_end():
    rows = [f"INSERT INTO frames VALUES ({i}, '{'x' * 300}', 0, '')" for i in range(200)]
    database = bytearray(database_with(TABLE, *rows))
    page_size = int.from_bytes(database[16:18], "big")
    # An inner page of a table starts with 5, its cells with the number of the page below.
    root = next(
        start for start in range(page_size, len(database), page_size) if database[start] == 5
    )
    cells = int.from_bytes(database[root + 3 : root + 5], "big")
    offsets = [
        root + int.from_bytes(database[root + 12 + 2 * i : root + 14 + 2 * i], "big")
        for i in range(cells)
    ]
    first_leaf = database[offsets[0] : offsets[0] + 4]
    for offset in offsets:
        database[offset : offset + 4] = first_leaf
    with pytest.raises(UnusableInput, match="same frame twice"):
        read_fusion_explorer(archive_of(bytes(database)), "f")


@pytest.mark.parametrize("name", [PAGE, ARCHIVE])
def test_a_damaged_record_is_taken_or_refused(data, survives_damage, name):
    survives_damage(lambda damaged: read_fusion_explorer(damaged, name), (data / name).read_bytes())


def test_a_damaged_database_is_taken_or_refused(data, survives_damage):
    database = database_of((data / ARCHIVE).read_bytes())
    survives_damage(lambda damaged: read_fusion_explorer(archive_of(damaged), "f"), database)
