"""Files of studies: what is in them, and mistakes told with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.passes.overrides import PairPattern
from fusionscope.study.study_files import read_study

CARTPOLE = Path(__file__).parents[2] / "samples" / "cartpole"
STEP = '[[steps]]\nname = "first"\nprogram = "model.py:step"\n'


def test_the_study_of_the_paper() -> None:
    study = read_study(CARTPOLE)
    assert study.steps[0].name == "library-random"
    assert {each.paper for each in study.steps} >= {"1.87x", "3.41x"}
    (changed,) = (each for each in study.steps if each.of is not None)
    assert changed.of == "drawn-inside"
    assert changed.changes.forbidden == (PairPattern("concatenate", "*"),)
    for step in study.steps:
        if step.of is None:
            assert (CARTPOLE / step.program.rpartition(":")[0]).exists()
            assert all("{n}" in each or each == "u32[2]" for each in step.arguments)


@pytest.mark.parametrize("folder", ["trade-off/unrolled", "trade-off/concatenate"])
def test_the_studies_of_the_trade_off(folder: str) -> None:
    study = read_study(CARTPOLE.parent / folder)
    first, *others = study.steps
    file, _, function = first.program.rpartition(":")
    assert function in (study.folder / file).read_text()
    assert {step.of for step in others} == {first.name}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", r"no \[\[steps\]\] in it"),
        ("steps = 3", r"no \[\[steps\]\] in it"),
        ("steps = [3]", "step 1 is no table"),
        ("[[steps]", "no TOML"),
        (f"{STEP}{STEP}", "two steps are called first"),
        ("[[steps]]\nname = 'a'", "either a program or the step that it is of"),
        (f"{STEP}of = 'x'", "either a program or the step that it is of"),
        (f"{STEP}allow = ['a -> b']", "rules are changed where it is of another step"),
        (f"{STEP}[[steps]]\nname = 'b'\nof = 'first'", "rules are changed where it is of another"),
        (f"[[steps]]\nname = 'b'\nof = 'first'\nallow = ['a -> b']\n{STEP}", "a step before it"),
        (f"{STEP}allow = ['a']", "expected 'PRODUCER -> CONSUMER'"),
        (f"{STEP}disable = ['no-such-rule']", "no-such-rule"),
        (f"{STEP}colour = 'red'", "step first has colour, expected one of"),
        (f"sizes = [0]\n{STEP}", "sizes: expected whole numbers above 0"),
        (f"sizes = 3\n{STEP}", "sizes is 3, expected list"),
        (f"work = true\n{STEP}", "work: expected whole numbers above 0"),
        (f"{STEP}arguments = [1]", "arguments is 1, expected str"),
        (f"{STEP}paper = 1.5", "paper of step first is 1.5, expected str"),
        ("[[steps]]\nprogram = 'a.py:f'", "step 1 has no name"),
        ("[[steps]]\nname = '../up'\nprogram = 'a.py:f'", "expected letters"),
    ],
)
def test_mistakes_are_told_with_the_file(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(content)
    with pytest.raises(UnusableInput, match=problem) as told:
        read_study(tmp_path)
    assert str(file) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_folder_without_a_study(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no such file"):
        read_study(tmp_path)
    (tmp_path / "study.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UnusableInput, match="byte 0 is not UTF-8"):
        read_study(tmp_path)
