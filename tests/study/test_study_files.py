"""Files of studies: what is in them, and mistakes told with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.dump import open_dump
from fusionscope.passes.overrides import PairPattern
from fusionscope.study.study import changes_for
from fusionscope.study.study_files import read_study

CARTPOLE = Path(__file__).parents[2] / "samples" / "cartpole"
STEP = '[[steps]]\nname = "first"\nprogram = "model.py:step"\n'


def test_the_study_of_the_paper() -> None:
    study = read_study(CARTPOLE)
    assert study.steps[0].name == "library-random"
    assert {step.paper for step in study.steps} >= {"1.87x", "3.41x"}
    (changed,) = (step for step in study.steps if step.of is not None)
    assert changed.of == "drawn-inside"
    assert changed.changes.forbidden == (PairPattern("concatenate", "*"),)
    for step in study.steps:
        if step.of is None:
            assert (CARTPOLE / step.program.rpartition(":")[0]).exists()
            assert all("{n}" in argument or argument == "u32[2]" for argument in step.arguments)


@pytest.mark.parametrize("folder", ["trade-off/unrolled", "trade-off/concatenate"])
def test_the_studies_of_the_trade_off(folder: str) -> None:
    study = read_study(CARTPOLE.parent / folder)
    first, *remaining = study.steps
    file, _, function = first.program.rpartition(":")
    assert function in (study.folder / file).read_text()
    assert {step.of for step in remaining} == {first.name}


@pytest.mark.parametrize(
    ("target", "disabled"),
    [
        ("cpu", {"no-fusion": ("fusion",), "joined": ("cpu-concat",)}),
        (
            "h100",
            {"no-fusion": ("priority-fusion", "multi_output_fusion"), "joined": ("pf-negative",)},
        ),
    ],
)
def test_a_step_for_several_devices_changes_what_each_compiler_has(
    target: str, disabled: dict[str, tuple[str, ...]]
) -> None:
    study = read_study(CARTPOLE.parent / "trade-off/concatenate")
    steps = {step.name: step for step in study.steps}
    (module,) = open_dump(CARTPOLE.parent / "dumps" / target / "elementwise").modules
    for name, ids in disabled.items():
        assert changes_for(steps[name], module).disabled == ids


def test_a_step_for_another_device_only(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        f"{STEP}[[steps]]\nname = 'b'\nof = 'first'\n"
        "set = ['cpu-code-dup.limit=3']\ndisable = ['cpu-concat']\n"
    )
    step = read_study(tmp_path).steps[1]
    (module,) = open_dump(CARTPOLE.parent / "dumps/h100/elementwise").modules
    with pytest.raises(UnusableInput, match="b: the compiler for a GPU has none of these: cpu-c"):
        changes_for(step, module)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("", None, "'steps' is missing"),
        ("steps = []", 1, r"steps = \[\], expected a list that is not empty"),
        ("steps = 3", 1, "steps = 3, expected a list"),
        ("steps = [3]", 1, r"steps\[0\] = 3, expected a table"),
        ("[[steps]", 1, "not TOML"),
        (f"{STEP}{STEP}", 4, "two steps are called first"),
        ("[[steps]]\nname = 'a'", 1, "either a program or the step that it is based on"),
        (f"{STEP}of = 'x'", 1, "either a program or the step that it is based on"),
        (f"{STEP}allow = ['a -> b']", 1, "rules are changed in a step that is based on"),
        (
            f"{STEP}[[steps]]\nname = 'b'\nof = 'first'",
            4,
            "rules are changed in a step that is based on another",
        ),
        (f"[[steps]]\nname = 'b'\nof = 'first'\nallow = ['a -> b']\n{STEP}", 1, "a step before b"),
        (f"{STEP}allow = ['a']", 1, "expected 'PRODUCER -> CONSUMER'"),
        (f"{STEP}disable = ['no-such-rule']", 1, "no-such-rule"),
        (f"{STEP}programme = 'x'", 4, "unknown key 'programme', did you mean 'program'?"),
        (f"{STEP}colour = 'red'", 4, "unknown key 'colour', expected one of name, what"),
        (f"sizes = [0]\n{STEP}", 1, r"sizes\[0\] = 0, expected a whole number above 0"),
        (f"sizes = 3\n{STEP}", 1, "sizes = 3, expected a list"),
        (f"title = 'x'\nwork = true\n{STEP}", 2, "work = True, expected a whole number"),
        (f"{STEP}arguments = [1]", 4, r"arguments\[0\] = 1, expected a text"),
        (f"{STEP}paper = 1.5", 4, "paper = 1.5, expected a text"),
        ("[[steps]]\nprogram = 'a.py:f'", 1, r"'name' is missing in steps\[0\]"),
        ("[[steps]]\nname = '../up'\nprogram = 'a.py:f'", 1, "expected letters"),
    ],
)
def test_mistakes_are_told_with_file_and_line(
    tmp_path: Path, content: str, line: int | None, problem: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(content)
    with pytest.raises(UnusableInput, match=problem) as reported:
        read_study(tmp_path)
    assert str(file) in str(reported.value)
    assert reported.value.line == line
    assert "\n" not in str(reported.value)


def test_a_folder_without_a_study(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no such file"):
        read_study(tmp_path)
    (tmp_path / "study.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UnusableInput, match="byte 0 is not UTF-8"):
        read_study(tmp_path)
