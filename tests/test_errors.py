"""Errors are one short line, however long the input is that they quote."""

import sys
from pathlib import Path

import pytest

import fusionscope
from fusionscope.cli.main import main
from fusionscope.errors import UnusableInput, quoted

PACKAGE = Path(fusionscope.__file__).parent
DUMP = PACKAGE.parent / "samples" / "dumps" / "cpu" / "elementwise"
LONG = "A" * 5000


@pytest.mark.parametrize("value", [LONG, "a\nb\x1b[31m", {"key": [LONG]}, LONG.encode(), None])
def test_a_quoted_value_is_short_and_on_one_line(value):
    assert len(quoted(value)) < 80
    assert quoted(value).isprintable()


def test_the_place_and_the_hint_are_never_cut():
    error = UnusableInput(LONG, file="a.txt", line=3, column=7, hint="look there")
    assert str(error).startswith("a.txt:3:7: AAA")
    assert str(error).endswith("A…; look there")
    assert len(str(error)) < 900
    assert len(str(UnusableInput("no such file", file=LONG))) < 900


PLANS = (
    f"{LONG} = 1",
    f'allow = ["{LONG}"]',
    f'disable = ["{LONG}"]',
    f"[set]\ncpu-concat.{LONG} = 12",
    f"[set]\n{LONG}.limit = 12",
    f'[set]\ncpu-concat.max_operands = "{LONG}"',
    f'[[kernel]]\n{LONG} = ["{LONG}"]',
    f'[[kernel]]\nmembers = "{LONG}"',
)
EXPECTATIONS = (
    f"{LONG} = 1",
    f"[[expect]]\n{LONG} = 1",
    f'[[expect]]\nkernels = "{LONG}"',
    f'[[expect]]\nnot_refused = ["{LONG}"]',
    f'[[expect]]\nkernels = 1\nwhere = {{ {LONG} = "x" }}',
    f'[[expect]]\nkernels = 1\nwhere = {{ module = ["{LONG}"] }}',
)
SELECTORS = ("--module", "--pair", "--reason", "--device", "--rules", "--where", "--by", "--show")
CHANGES = ("--allow", "--forbid", "--set", "--disable", "--plan")


@pytest.mark.parametrize(
    "words",
    [
        *(["explain", "DUMP", option, LONG] for option in SELECTORS),
        *(["what-if", "DUMP", option, LONG] for option in CHANGES),
        *(["what-if", "DUMP", "--plan", plan] for plan in PLANS),
        *(["check", "DUMP", "--expect", item] for item in EXPECTATIONS),
        *(["check", "DUMP", "--baseline", item] for item in (LONG, f'{{"schema": "{LONG}"}}')),
        ["history", "DUMP", LONG],
        ["diff", f"DUMP@{LONG}", "DUMP"],
        ["rules", LONG],
        ["explain", LONG],
        ["capture", LONG],
        ["capture", "f.py:f", "--arg", LONG],
        ["capture", "f.py:f", "--variant", LONG],
        ["rerun", "DUMP", "--forbid", f"{LONG} -> {LONG}"],
        ["rerun", "DUMP", "--plan", f'[[kernel]]\nmembers = ["{LONG}"]'],
        ["study", LONG],
    ],
    ids=lambda words: " ".join(word[:30] for word in words),
)
def test_a_long_value_makes_a_short_error(words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text(words[-1])
    is_content = "\n" in words[-1] or words[-1].startswith("{") or " = " in words[-1]
    words = [word.replace("DUMP", str(DUMP)) for word in words]
    monkeypatch.setattr(
        sys, "argv", ["fusionscope", *words[:-1], "file" if is_content else words[-1]]
    )
    with pytest.raises(SystemExit) as leaving:
        main()
    (line,) = capfd.readouterr().err.splitlines()
    assert leaving.value.code == 2
    assert line.startswith("fusionscope: ")
    assert len(line) < 1500
