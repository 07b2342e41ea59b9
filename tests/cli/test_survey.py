"""The `survey` command: its formats, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from sample_dumps import CPU, GPU, unlike_documented


@pytest.fixture
def tables(run: Any, tmp_path: Path) -> Path:
    result = run(CPU, GPU, "-o", tmp_path / "tables")
    assert (result.code, result.errors) == (0, "")
    assert "2 dumps with 2 modules; 2 different modules analysed" in result.out
    return tmp_path / "tables"


def test_a_survey_as_json(run: Any, tmp_path: Path) -> None:
    result = run(CPU, "-o", tmp_path / "tables", "--format", "json")
    actual = json.loads(result.out)
    assert (actual["dumps"], actual["modules"], actual["analysed"]) == (1, 1, 1)
    assert not unlike_documented("survey", actual, besides=("unreadable[]",))


def test_a_report(run: Any, tables: Path, tmp_path: Path) -> None:
    text = run("report", tables)
    assert text.code == 0
    assert "Refusals by rule" in text.out
    assert max(map(len, text.out.splitlines())) <= 100
    narrow = run("report", tables, COLUMNS="80")
    assert max(map(len, narrow.out.splitlines())) <= 80
    actual = json.loads(run("report", tables, "--format", "json").out)
    assert actual["counts"]["dumps"] == 2
    assert run("report", tables, "--format", "markdown").out.startswith("## ")
    page = tmp_path / "page.html"
    assert run("report", tables, "--format", "html", "--output", page).code == 0
    assert "Refusals by rule" in page.read_text()


def test_a_question(run: Any, tables: Path) -> None:
    options = run("query", tables, "SELECT count(*) AS n, 'x' AS text FROM modules")
    assert options.out.split() == ["n", "text", "2", "x", "1", "row"]
    question = (
        "SELECT day, time_us, 1.5::DECIMAL(4, 2) AS d, [1] AS l, 'nan'::DOUBLE AS n FROM modules"
    )
    actual = json.loads(run("query", tables, question, "--format", "json").out)
    assert [column["name"] for column in actual["columns"]] == ["day", "time_us", "d", "l", "n"]
    assert actual["rows"][0][2:] == [1.5, [1], None]
    visible = run("query", tables, "SELECT '<b>|' AS x", "--format", "markdown").out
    assert visible.splitlines()[2:] == ["| &lt;b>\\| |", "", "- 1 row"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "-o", "{tmp}/t"], "nowhere: cannot be listed: no such file or directory"),
        (["{tmp}", "-o", "{tmp}/t"], "no dump there"),
        (["odd://x", "-o", "{tmp}/t"], "odd://x: cannot be listed: Protocol not known: odd"),
        (["memory://x", "-o", "{tmp}/t", "--jobs", "2"], "expected --jobs 1"),
        (["{tmp}"], "Missing option '-o'"),
        (["-o", "{tmp}/t"], "Missing argument 'PATHS...'"),
        (["{tmp}", "-o", "{tmp}/t", "--sample", "0"], "0 is not in the range"),
        (["report", "{tmp}/t"], "no such directory, expected that of a survey"),
        (["report", "{tmp}"], "no survey in it; make one: fusionscope survey PATHS -o"),
        (["query", "{tmp}", "SELECT 1"], "no survey in it"),
        (["query", "{tmp}"], "Missing argument 'SQL'"),
    ],
)
def test_what_is_refused(run: Any, tmp_path: Path, arguments: list[str], message: str) -> None:
    run(*(argument.format(tmp=tmp_path) for argument in arguments)).check_refused(message)


def test_help_shows_all_three(run: Any) -> None:
    text = run("--help").out
    assert "survey [OPTIONS] PATHS..." in text
    assert "survey report tables" in text
    assert "survey query tables" in text
    assert "--before" in run("report", "--help").out
