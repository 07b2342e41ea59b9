# ruff: noqa: E501  (tables of cases, a line each)
"""The `check` command: exit codes, and what other tools read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sample_dumps import DUMPS, unlike_documented, unpacked

DUMP = DUMPS / "h100/attention"
EXPECTED = """
[[expect]]
one_kernel = ["exponential", "reduce", "divide"]
message = "softmax, in one kernel: 100% of it"

[[expect]]
fused = "divide -> dot"

[[expect]]
kernels = 2
"""


@pytest.fixture
def expected(tmp_path):
    file = tmp_path / "fusions.toml"
    file.write_text(EXPECTED)
    return file


def test_met_and_not_met(run, tmp_path, expected):
    result = run(DUMP, "--expect", expected)
    assert result.code == 1
    assert "met  softmax, in one kernel" in result.out
    assert "NOT MET  fused = divide -> dot" in result.out
    assert "div.11 -> dot_general.3 is not fused (gf-input-worth" in result.out
    assert "at samples/programs/attention.py:13" in result.out
    assert "2 of 3 expectations not met" in result.out
    expected.write_text(EXPECTED.partition("\n[[expect]]\nfused")[0])
    result = run(DUMP, "--expect", expected)
    assert result.code == 0
    assert "1 expectation met" in result.out


def test_json(run, expected):
    document = json.loads(run(DUMP, "--expect", expected, "--format", "json").out)
    assert document["met"] is False
    assert [item["met"] for item in document["expectations"]] == [True, False, False]


def test_junit_is_read_by_others(run, tmp_path, expected):
    file = tmp_path / "fusions.xml"
    assert run(DUMP, "--expect", expected, "--format", "junit", "--output", file).code == 1
    root = ElementTree.parse(file).getroot()
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "3", "2")
    junitparser = pytest.importorskip("junitparser")
    (suite,) = junitparser.JUnitXml.fromfile(str(file))
    assert (suite.tests, suite.failures) == (3, 2)
    cases = {case.name: case.result for case in suite}
    assert cases["softmax, in one kernel: 100% of it"] == []
    (failure,) = cases["fused = divide -> dot"]
    assert "gf-input-worth" in failure.message


def test_sarif_is_read_by_others(run, tmp_path, expected, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "fusions.sarif"
    assert run(DUMP, "--expect", expected, "--format", "sarif", "--output", file).code == 1
    content = json.loads(file.read_text())
    (first, second) = content["runs"][0]["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "samples/programs/attention.py"
    assert place["region"]["startLine"] == 13
    # What has no line of the program is shown at what was expected.
    place = second["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == expected.name
    assert place["region"]["startLine"] == EXPECTED.splitlines().index("kernels = 2") + 1
    rules = content["runs"][0]["tool"]["driver"]["rules"]
    assert [rules[item["ruleIndex"]]["id"] for item in (first, second)] == ["fused", "kernels"]
    sarif = pytest.importorskip("sarif_pydantic")
    assert len(sarif.Sarif.model_validate(content).runs[0].results) == 2


def test_annotations_and_a_summary(run, tmp_path, expected, monkeypatch):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = run(DUMP, "--expect", expected, "--format", "github")
    assert result.code == 1
    lines = result.out.splitlines()
    assert all(re.match(r"::(error|notice) [^:]*::", line) for line in lines)
    assert lines[0].startswith(
        "::error file=samples/programs/attention.py,line=13,title=fused = divide -> dot::"
    )
    assert "2 of 3 expectations not met" in summary.read_text()
    assert "- ✅ softmax, in one kernel: 100% of it" in summary.read_text()


@pytest.mark.parametrize("format_name", ["github", "sarif"])
def test_what_lies_outside_of_the_repository_is_no_place_in_it(
    run, tmp_path, expected, monkeypatch, format_name
):
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    result = run(DUMP, "--expect", expected, "--format", format_name)
    assert "samples/programs/attention.py" in result.out
    assert str(tmp_path) not in result.out
    assert expected.name not in result.out


@pytest.mark.parametrize("name", ["folder", "/dev/full", "nowhere/summary.md"])
def test_a_summary_that_cannot_be_written_is_told(run, tmp_path, expected, monkeypatch, name):
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / name))
    result = run(DUMP, "--expect", expected, "--format", "github")
    assert result.code == 1
    (line,) = result.errors.splitlines()
    assert line.startswith("fusionscope: no step summary: ")


def test_a_baseline(run, tmp_path):
    file = tmp_path / "baseline.json"
    softmax = DUMPS / "h100/softmax"
    assert run(softmax, "--baseline", file, "--update").code == 0
    assert run(softmax, "--baseline", file).code == 0
    worse = DUMPS / "h100-without-triton-softmax/softmax"
    result = run(worse, "--baseline", file)
    assert result.code == 1
    assert "was fused by triton-softmax-rewriter, and is not" in result.out
    run(worse, "--baseline", file, "--update")
    assert run(softmax, "--baseline", file).code == 1
    assert run(softmax, "--baseline", file, "--allow-better").code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--expect", "nowhere.toml"], "nowhere.toml: no such file"),
        (["--baseline", "nowhere.json"], "nowhere.json: no such file"),
        (["--update"], "name its file with --baseline"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(run, arguments, problem):
    result = run(DUMP, *arguments)
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert problem in result.errors


def test_a_mistake_in_a_file_is_told_with_its_line(run, expected):
    expected.write_text(EXPECTED.replace("kernels = 2", "kernel = 2"))
    result = run(DUMP, "--expect", expected)
    line = EXPECTED.splitlines().index("kernels = 2") + 1
    assert result.code == 2
    assert result.errors.startswith(f"fusionscope: {expected}:{line}: unknown key 'kernel'")


def test_nothing_is_expected(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(DUMP)
    assert result.code == 2
    assert "nothing is expected" in result.errors
    Path("pyproject.toml").write_text("[[tool.fusionscope.expect]]\nkernels = 3\n")
    assert run(DUMP).code == 0
    Path("fusionscope.toml").write_text("[[expect]]\nkernels = 2\n")
    assert run(DUMP).code == 1


GOOD, WORSE = DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax"


def test_against_another_dump(run):
    """Without a file; improvements are accepted."""
    result = run(WORSE, "--against", GOOD)
    assert result.code == 1
    assert "was fused by triton-softmax-rewriter, and is not" in result.out
    assert run(GOOD, "--against", WORSE).code == 0
    assert run(GOOD, "--against", GOOD, "--strict").code == 0


def test_every_format_at_once_and_every_field(run, tmp_path):
    """Budgets, an exception, a baseline: then the JSON has all of its fields."""
    expected = tmp_path / "fusions.toml"
    expected.write_text(
        '[[expect]]\nmax_growth = { launches = "0%", bytes = "0%" }\n'
        '[[allow]]\ngrowth = { bytes = "900%" }\nuntil = 9999-12-31\nwhy = "not today"\n'
        '[[allow]]\npair = "reduce -> broadcast"\nuntil = 9999-12-31\nwhy = "not today"\n'
    )
    files = {name: tmp_path / f"out.{name}" for name in ("json", "sarif", "junit", "markdown")}
    also = [word for name, file in files.items() for word in ("--also", f"{name}={file}")]
    assert run(WORSE, "--against", GOOD, "--expect", expected, *also).code == 1
    document = json.loads(files["json"].read_text())
    elsewhere = ("problems[]", "rules[].guessed[]")
    assert not unlike_documented("check", document, besides=elsewhere)
    (module,) = document["modules"]
    assert (module["before"]["kernels"], module["before"]["launches"]) == (1, 1)
    allowed = [item for verdict in document["expectations"] for item in verdict["allowed"]]
    assert {(item["reason"], item["until"]) for item in allowed} == {
        (None, "9999-12-31"),
        ("pf-two-reduces", "9999-12-31"),
    }
    (growth,) = (item["growth"] for item in document["expectations"][0]["violations"])
    assert growth["figure"] == "launches"
    assert growth["after"] == module["now"]["launches"]
    text = files["markdown"].read_text()
    assert text.startswith("<!-- fusionscope check -->\n## fusionscope check: ")
    assert f"| ❌ | jit_program | 1 → {module['now']['kernels']} |" in text
    assert "[[allow]]" in text


def test_fingerprints_stay_when_lines_move(run, tmp_path):
    def prints(dump):
        text = json.loads(run(dump, "--against", GOOD, "--format", "sarif").out)
        results = text["runs"][0]["results"]
        return [
            result["partialFingerprints"]["primaryLocationLineHash"] for result in results
        ], text

    first, text = prints(WORSE)
    assert len(first) == len(set(first)) > 1
    moved = tmp_path / "moved"
    moved.mkdir()
    for name, content in unpacked(WORSE).items():
        if name.endswith(".txt"):
            content = re.sub(rb"\bline=(\d+)", rb"line=1\1", content)
        (moved / name).write_bytes(content)
    again, moved_text = prints(moved)
    assert again == first
    assert moved_text != text


def test_test_cases_have_a_time_and_a_place(run, tmp_path, expected, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = ElementTree.fromstring(run(DUMP, "--expect", expected, "--format", "junit").out)
    cases = list(root.iter("testcase"))
    places = [(case.get("file"), case.get("line")) for case in cases]
    assert places == [
        (expected.name, "3"),
        ("samples/programs/attention.py", "13"),
        (expected.name, "10"),
    ]
    assert all(float(case.get("time")) >= 0 for case in (root, *cases))


def test_an_update_says_what_it_accepts(run, tmp_path):
    file = tmp_path / "baseline.json"
    first = run(GOOD, DUMP, "--baseline", file, "--update").out
    assert len(re.findall(r"^ *new  jit_program\(", first, re.MULTILINE)) == 2
    again = run(GOOD, DUMP, "--baseline", file, "--update").out
    assert again == f"unchanged  2 modules\nwritten: {file}\n"
    worse = run(WORSE, "--baseline", file, "--update").out
    assert worse.startswith("accepted  jit_program(f32[256,512]) on H100 SXM\n")
    assert "was fused by triton-softmax-rewriter, and is not" in worse
    assert re.search(r"^ *removed  jit_program\(f32\[4,128,64\].*: no dump has it$", worse, re.M)
    assert len(json.loads(file.read_text())["modules"]) == 1


def test_an_update_of_one_module_leaves_the_others(run, tmp_path):
    several = Path(__file__).parents[1] / "check" / "several"
    file = tmp_path / "baseline.json"
    run(several, GOOD, "--baseline", file, "--update")
    whole = file.read_text()
    names = {item["name"] for item in json.loads(whole)["modules"]}
    second = sorted(names - {"jit_program"})[0]
    result = run(several, "--baseline", file, "--update", "--module", second)
    assert re.search(r"^ *kept  \d other modules?$", result.out, re.MULTILINE)
    assert file.read_text() == whole
    assert run(several, "--baseline", file, "--module", second).code == 0
    assert run(several, "--baseline", file).code == 1  # the softmax is missed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([DUMP, "--against", "main"], "only the programs of a matrix can be compiled"),
        ([DUMP, "--against", str(DUMPS / "cpu/softmax")], "none of the modules is in it, it has jit_"),
        ([DUMP, "--against", "x", "--baseline", "y"], "--baseline and --against both say"),
        ([DUMP, "--against", str(GOOD), "--also", "text"], "--also 'text': expected FORMAT=FILE"),
        ([DUMP, "--against", str(DUMP), "--module", "x*"], "no module is called 'x*', there are jit_"),
        ([], "nothing to check"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(run, arguments, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert problem in result.errors
