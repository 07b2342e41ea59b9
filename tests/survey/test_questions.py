"""Questions in SQL, the report, and what docs/survey.md says of the tables."""

import re
from pathlib import Path

import pytest
from surveying import DUMPS, rows, run

from fusionscope.errors import UnusableInput
from fusionscope.report.html.page import fleet_page
from fusionscope.report.survey import fleet_sections
from fusionscope.survey.fleet import read_fleet
from fusionscope.survey.questions import ask
from fusionscope.survey.store import open_store
from fusionscope.survey.tables import (
    TABLES,
    VERSION_KEY,
    KernelRow,
    MemoryRow,
    schema_of,
    table_of,
)
from fusionscope.words.markdown import to_markdown

PAGE = (Path(__file__).parents[2] / "docs" / "survey.md").read_text()
QUESTIONS = re.findall(r"^\*\*([^*]+\?)\*\*[^`]*?^```sql\n(.*?)^```$", PAGE, re.M | re.S)
# What is no longer fused on the second day: without a pass, and by a newer compiler.
DAYS = {
    "2026-11-24": ("h100/softmax", "a100-jaxlib-0.4.35/reductions"),
    "2026-11-25": ("h100-without-triton-softmax/softmax", "a100/reductions"),
}
WORDS = {
    "text": "string",
    "integer": "int64",
    "number": "double",
    "boolean": "bool",
    "list of texts": "list<element: string>",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs, on two days; the names are not harmless."""
    root = tmp_path_factory.mktemp("fleet")
    for day, names in DAYS.items():
        for number, name in enumerate(names):
            (root / day / f"<b>&|{number}").mkdir(parents=True)
            for file in (DUMPS / name).iterdir():
                (root / day / f"<b>&|{number}" / file.name).symlink_to(file)
    run([root], root / "<i>tables", tries=True)
    return root / "<i>tables"


@pytest.mark.parametrize(("title", "question"), QUESTIONS, ids=lambda text: text[:20])
def test_the_questions_of_the_page_have_answers(tables: Path, title: str, question: str) -> None:
    actual = ask(open_store(tables), question)
    if not title.startswith("What could not be read"):
        assert actual.rows


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) >= 10


def test_the_page_describes_each_column() -> None:
    for name, kind in TABLES.items():
        section = PAGE.partition(f"\n### {name}\n")[2].partition("\n##")[0]
        described = {}
        for names, words in re.findall(r"^\| (`.*?`) \| (.*?) \|", section, re.M):
            for column in re.findall(r"`(\w+)`", names):
                described[column] = words
        if name == "dumps":
            for column in ("jaxlib", "device", "day"):
                del described[column]
        schema = schema_of(kind)
        assert set(described) == set(schema.names), name
        for field in schema:
            words = described[field.name]
            if field.name == "reason" and name == "refusals":
                words = "text"
            plain = words.partition(",")[0].removesuffix(" or null")
            assert str(field.type).replace("item:", "element:") == WORDS[plain], (name, field)
            assert field.nullable == ("null" in words), (name, field)


def test_known_faults_are_rows_and_a_table(tmp_path: Path) -> None:
    texts = Path(__file__).parents[1] / "explain" / "advisories"
    stages = {
        "-program": "0021.hlo_normalization.after_pipeline-start.before_algsimp",
        "": "sm_9.0_gpu_after_optimizations",
    }
    for dump in ("one", "two"):
        (tmp_path / "runs" / dump).mkdir(parents=True)
        for part, stage in stages.items():
            text = (texts / f"factor-before-bias{part}.hlo").read_text()
            (tmp_path / "runs" / dump / f"module_0001.jit_res.{stage}.txt").write_text(text)
    run([tmp_path / "runs"], tmp_path / "tables")
    question = "SELECT DISTINCT fault, is_certain, kernels FROM advisories"
    assert rows(tmp_path / "tables", question) == [
        ("factor-before-bias", True, ["cublas-lt-matmul.3"])
    ]
    fleet = read_fleet(open_store(tmp_path / "tables"))
    (fault,) = fleet.faults
    assert (fault.fault, fault.certain, fault.possible, fault.dumps) == (
        "factor-before-bias", 2, 0, 2,
    )  # fmt: skip
    assert "factor-before-bias" in "".join(to_markdown(fleet_sections(fleet)))


def test_the_version_is_in_each_file(tables: Path) -> None:
    assert schema_of(MemoryRow).metadata == {VERSION_KEY: b"1"}


def test_another_version_is_refused(tables: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    result = next((tables / "done").iterdir())
    table = pyarrow.parquet.read_table(result).replace_schema_metadata({VERSION_KEY: b"2"})
    (tmp_path / "done").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "done" / result.name)
    with pytest.raises(UnusableInput, match="version 2 of the tables, expected 1"):
        open_store(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"x" * 1000])
def test_damaged_tables(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "a.parquet").write_bytes(damage)
    with pytest.raises(UnusableInput, match="not a whole Parquet file"):
        open_store(tmp_path)


def test_text_that_is_no_unicode_and_numbers_that_are_too_large() -> None:
    row = KernelRow(
        content="c", kernel="\udcff", kind="", emitter="", computation="", members=("a\ud800",),
        bytes_read=0, bytes_written=0, bytes_moved=0, launches=1, launches_known=True,
        time_us=None, time_source=None, op_name=None, scope=None, source=None,
    )  # fmt: skip
    (output,) = table_of(KernelRow, [row]).to_pylist()
    assert (output["kernel"], output["members"]) == ("?", ["a?"])
    large = MemoryRow(
        content="c", total_bytes=1 << 70, parameters=0, donated=0, outputs=0, temporaries=0,
        constants=0, thread_local=0, fragmentation=0, peak_bytes=None, peak_instruction=None,
    )  # fmt: skip
    with pytest.raises(OverflowError):
        table_of(MemoryRow, [large])


@pytest.mark.parametrize(
    "question",
    [
        "COPY (SELECT 1) TO '{tmp}/written.csv'",
        "SELECT * FROM read_csv('{tmp}/secret.csv')",
        "FROM '{tmp}/secret.csv'",
        "SELECT * FROM read_text('{tmp}/secret.csv')",
        "SELECT * FROM glob('{tmp}/*')",
        "FROM query('COPY (SELECT 1) TO ''{tmp}/written.csv''')",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{tmp}/written.csv'",
        "ATTACH '{tmp}/written.db'",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW pairs",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT * FROM 'https://example.com/a.csv'",
        "SELECT 1; SELECT 2",
        "",
        "SELEC",
        "SELECT nothing FROM pairs",
        "FROM secret",
    ],
)
def test_a_question_reads_these_tables_and_writes_nothing(
    tables: Path, tmp_path: Path, question: str
) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    secret = [1, 2, 3]  # what DuckDB would find by its name
    with pytest.raises(UnusableInput) as error:
        ask(open_store(tables), question.format(tmp=tmp_path))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert secret


def test_what_got_worse_is_what_diff_says(tables: Path) -> None:
    """By docs/diff.md: 3 launches for 1, and two pairs of 2.05 kB that are no longer fused."""
    fleet = read_fleet(open_store(tables))
    assert fleet.worse is not None
    assert (fleet.worse.before, fleet.worse.after) == ("2026-11-24", "2026-11-25")
    assert fleet.worse.programs == 2
    (line,) = (line for line in fleet.worse.lines if "H100" in line.device)
    assert (line.launches_before, line.launches, line.refused_before) == (1, 3, 0)
    assert line.refused == 2 * 2048
    assert line.reason in ("pf-two-reduces", "pf-reduce-to-loop")
    with pytest.raises(UnusableInput, match="no dump is of '2026-11-01'"):
        read_fleet(open_store(tables), before="2026-11-01")
    with pytest.raises(UnusableInput, match="no day before 2026-11-24"):
        read_fleet(open_store(tables), after="2026-11-24")


def test_sums_of_the_report_are_sums_of_the_tables(tables: Path) -> None:
    fleet = read_fleet(open_store(tables), top=1000)
    ((pairs, refused),) = rows(
        tables, "SELECT count(*), sum(bytes_saved) FILTER (reason IS NOT NULL) FROM pairs"
    )
    assert (fleet.counts.pairs, fleet.counts.refused_bytes) == (pairs, refused)
    for lines in (fleet.rules, fleet.scopes, fleet.files, fleet.versions):
        assert sum(line.refused_bytes for line in lines) == refused


def test_the_page_escapes_names_and_has_no_script(tables: Path) -> None:
    page = fleet_page(read_fleet(open_store(tables)))
    assert "<i>tables" not in page
    assert "&lt;i&gt;tables" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert len(page) < 60_000
    words = "\n".join(to_markdown(fleet_sections(read_fleet(open_store(tables)))))
    assert "<i>" not in words
