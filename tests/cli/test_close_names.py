"""Names that nothing has, files that are not there, texts that are no HLO: one line, at once."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fusionscope.cli.main import main
from tests.cli.conftest import Result

ROOT = Path(__file__).parents[2]
DUMPS = ROOT / "samples" / "dumps"
CPU = DUMPS / "cpu" / "concatenate"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Any:
    """Runs the console script in this process, with any command."""

    def call(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["fusionscope", *map(str, words)])
        with pytest.raises(SystemExit) as leaving:
            main()
        sys.stdout.flush()
        out, errors = capfdbinary.readouterr()
        return Result(int(leaving.value.code or 0), out.decode(), errors.decode())

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explian", CPU], "no command is called 'explian'; did you mean 'explain'?"),
        (["hystory"], "did you mean 'history'?"),
        (["xyz"], "`fusionscope --help` lists all commands"),
        (["rerun", CPU, "--allow", "concatenat -> reduce"], "did you mean 'concatenate'"),
        (["rerun", CPU, "--forbid", "concatenate -> redduce"], "did you mean 'reduce'"),
        (
            ["rerun", CPU, "--forbid", "concatenate -> tanh"],
            "did you mean 'concatenate.1 -> reduce_sum.7'",
        ),
        (["experiment", CPU, "concatenatee -> add"], "did you mean 'concatenate'"),
        (["explain", CPU, "--device", "h1000"], "did you mean h100"),
        (["verify", CPU, "--device", "b20"], "did you mean b200"),
        (["rerun", "--self-test", "--device", "h1000"], "did you mean h100"),
        (["capture", "program.py:step", "--device", "h1000"], "did you mean h100"),
        (["explain", CPU, "--rules", "cpu-0.1O"], "cpu-0.10"),
    ],
)
def test_a_name_that_nothing_has(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("def step(x): return x\n")
    run(*words).check_refused(message)


@pytest.mark.parametrize("command", ["tune", "rerun", "bisect"])
def test_inputs_are_looked_for_first(run, tmp_path, command):
    """Before the dump is opened, which is not there either."""
    run(command, "nowhere", "--inputs", tmp_path / "missing.npz").check_refused(
        "missing.npz: no such file"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "nowhere", "--plan", "missing"],
        ["rerun", "nowhere", "--plan", "missing"],
        ["rerun", "nowhere", "--variant", "missing"],
        ["bisect", "nowhere", "--predicate", "missing:wrong"],
    ],
)
def test_files_of_options_are_looked_for_first(run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    run(*words).check_refused("missing: no such file")


@pytest.mark.parametrize("command", ["explain", "history", "parse", "verify"])
@pytest.mark.parametrize("file", ["README.md", "CHANGELOG.md"])
def test_a_text_that_is_no_hlo(run, command, file):
    run(command, ROOT / file).check_refused("s this HLO text?")


def test_hlo_with_a_mistake_is_taken_for_hlo(run, tmp_path):
    text = "// a comment\n/* and\n another */ HloModule m\n\nENTRY e {\n  ROOT a = f32[2 add()\n}\n"
    (tmp_path / "mistake.hlo").write_text(text)
    result = run("parse", tmp_path / "mistake.hlo")
    assert result.code == 2 and "Is this" not in result.errors


def test_a_function_that_a_file_does_not_have(run, tmp_path, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("def function(x): return x\n")
    run("capture", "program.py:functoin", "--arg", "f32[3]").check_refused(
        "has no functoin; did you mean 'function'?"
    )
