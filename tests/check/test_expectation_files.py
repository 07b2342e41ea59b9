# ruff: noqa: E501  (a table of mistakes, a line each)
"""Files of what is expected: what is wrong with one is told with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.check.expectation_files import read_expectations, read_expected

GOOD = """
[[expect]]
fused = "exponential -> reduce"
where = { module = "jit_step", device = "h100" }
message = "one softmax"

[[expect]]
kernels = 3
"""


def written(directory: Path, text: str, name: str = "fusionscope.toml") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def test_what_stands_in_it(tmp_path: Path) -> None:
    first, second = read_expectations(written(tmp_path, GOOD))
    assert (first.key, first.value, first.message, first.line) == (
        "fused",
        "exponential -> reduce",
        "one softmax",
        3,
    )
    assert (first.where.module, first.where.device, first.where.source) == (
        "jit_step",
        "h100",
        None,
    )
    assert (second.key, second.value, second.line) == ("kernels", 3, 8)


def test_a_table_of_a_pyproject(tmp_path: Path) -> None:
    text = "[project]\nname = 'x'\n" + GOOD.replace("[[expect]]", "[[tool.fusionscope.expect]]")
    actual = read_expectations(written(tmp_path, text, "pyproject.toml"))
    assert [item.line for item in actual] == [5, 10]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (GOOD.replace("fused", "fussed"), 3, "unknown key 'fussed', did you mean 'fused'?"),
        (GOOD.replace("device =", "devise ="), 4, "unknown key 'devise' in where, did you mean 'device'"),
        (GOOD.replace("kernels = 3", "kernels = '3'"), 8, "kernels = '3', expected a whole number"),
        (GOOD.replace("kernels = 3", "kernels = -1"), 8, "expected a whole number"),
        (GOOD.replace("kernels = 3", "kernels = true"), 8, "expected a whole number"),
        (GOOD.replace("kernels = 3", "bytes = '12 apples'"), 8, "expected a number of bytes"),
        (GOOD.replace("kernels = 3", f"bytes = '{'9' * 400} GB'"), 8, "expected a number of bytes"),
        (GOOD.replace("kernels = 3", "fused = 'a, b'"), 8, "expected 'PRODUCER -> CONSUMER'"),
        (GOOD.replace("kernels = 3", "fused = 'a ->'"), 8, "expected 'PRODUCER -> CONSUMER'"),
        (GOOD.replace("kernels = 3", "one_kernel = []"), 8, "a list of operations"),
        (GOOD.replace("kernels = 3", "one_kernel = 'a'"), 8, "a list of strings"),
        (GOOD.replace("kernels = 3", "not_refused = ['pf-negativ']"), 8, "did you mean 'pf-negative'"),
        (GOOD.replace("kernels = 3", "message = 'only words'"), 7, "says nothing, expected one of"),
        (GOOD.replace("kernels = 3", "kernels = 3\nlaunches = 4"), 7, "has kernels and launches"),
        (GOOD.replace("\"one softmax\"", "7"), 5, "message = 7, expected a text"),
        (GOOD.replace("{ module = \"jit_step\", device = \"h100\" }", "'jit_step'"), 4, "expected a table"),
        (GOOD.replace("\"jit_step\"", "3"), 4, "module = 3, expected a text"),
        (GOOD + "\n[other]\nx = 1\n", 10, "unknown key 'other'"),
        ("expect = 3\n", 1, "expect = 3, expected a list"),
        ("", None, "has no expectations"),
        ("[[expect]\n", 1, "not TOML"),
        ("x = 1\n[[expect]]\nkernels = 1\n", 1, "unknown key 'x'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(
    text: str, line: int | None, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(UnusableInput) as reported:
        read_expectations(written(tmp_path, text))
    assert problem in reported.value.problem
    assert reported.value.line == line
    assert "\n" not in str(reported.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no such file"):
        read_expectations(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnusableInput, match="byte 0 is not UTF-8"):
        read_expectations(tmp_path / "binary.toml")


MATRIX = """
[[program]]
function = "nn.py:step"
arguments = ["f32[8,128]"]

[[program]]
name = "step-wide"
function = "nn.py:step"
arguments = ["f32[8,4096]"]
targets = ["h100"]

[[target]]
device = "cpu"

[[target]]
device = "tpu:v5e"
name = "h100"
flags = ["xla_tpu_x=1", "--xla_y=2"]
python = ".venv/bin/python"
"""
ALLOW = """
[[expect]]
max_growth = { launches = 1, time = "5%" }

[[allow]]
growth = { launches = "10%" }
until = 2026-05-31
why = "a workaround"
"""


def test_a_matrix(tmp_path: Path) -> None:
    matrix = read_expected(written(tmp_path, MATRIX)).matrix
    assert matrix is not None
    assert [(program.name, target.name) for program, target in matrix.cells] == [
        ("step", "cpu"),
        ("step", "h100"),
        ("step-wide", "h100"),
    ]
    assert matrix.targets[1].flags == ("--xla_tpu_x=1", "--xla_y=2")
    assert matrix.targets[1].python == str(tmp_path / ".venv/bin/python")
    pythons = matrix.with_pythons({None: "python3", "h100": "other"}).targets
    assert [python.python for python in pythons] == ["python3", "other"]
    with pytest.raises(UnusableInput, match="did you mean 'h100'"):
        matrix.with_pythons({"h10": "python3"})
    with pytest.raises(UnusableInput, match="there are step, step-wide"):
        matrix.only("loss")


def test_budgets_and_exceptions(tmp_path: Path) -> None:
    actual = read_expected(written(tmp_path, ALLOW))
    assert [(expectation.value, expectation.line) for expectation in actual.expectations] == [
        ({"launches": 1}, 3),
        ({"time": "5%"}, 3),
    ]
    (allowance,) = actual.allowances
    assert (allowance.until, allowance.why) == (date(2026, 5, 31), "a workaround")
    assert allowance.place.endswith("fusionscope.toml:5")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (MATRIX.replace("name = \"step-wide\"\n", ""), 2, "two programs are called 'step'"),
        (MATRIX.replace("name = \"h100\"", "name = 'cpu'"), 12, "two targets are called 'cpu'"),
        (MATRIX.replace("step-wide", "../x"), 6, "name = '../x', expected letters, digits"),
        (MATRIX.replace("step-wide", ".."), 6, "name = '..', expected letters, digits"),
        (MATRIX.replace("[\"h100\"]", "[\"h10\"]"), 10, "no target is called 'h10', did you mean 'h100'?"),
        (MATRIX.partition("[[target]]")[0], 2, "has [[program]] tables, and no [[target]]"),
        ("[[target]]\ndevice = 'cpu'\n[[expect]]\nkernels = 1\n", 1, "has [[target]] tables, and no [[program]]"),
        (MATRIX.replace("device = \"cpu\"", "flags = []"), 12, "'device' is missing"),
        (ALLOW.replace("2026-05-31", "'next year'"), 7, "until = 'next year'"),
        (ALLOW.replace("why = \"a workaround\"", ""), 5, "'why' is missing"),
        (ALLOW.replace("growth = { launches = \"10%\" }", ""), 5, "an [[allow]] says nothing, expected one of growth, pair"),
        (ALLOW.replace("launches = 1", "lunches = 1"), 3, "expected a table of launches"),
        (ALLOW.replace("launches = 1", "launches = -1"), 3, "for launches a whole number or a share"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_matrix_or_a_budget(
    text: str, line: int | None, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(UnusableInput) as reported:
        read_expected(written(tmp_path, text))
    assert problem in reported.value.problem
    assert reported.value.line == line
