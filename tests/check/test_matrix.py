"""A matrix in a repository, compiled as it is and as it was, by the real compiler for CPUs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fusionscope.cli.main import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax"),
]

MODEL = """
import jax
import jax.numpy as jnp

def mix(rows, others):
    return jnp.sqrt(jnp.abs(jnp.tanh(rows) + others)) + 1

def total(rows):
    return jnp.sin(rows).sum()
"""
FILE = """
[[target]]
device = "cpu"

[[program]]
function = "models/nn.py:mix"
arguments = ["f32[64,128]", "f32[64,128]"]

[[program]]
function = "models.nn:total"
arguments = ["f32[64,128]"]

[[expect]]
one_kernel = ["tanh", "sqrt"]
where = { program = "mix", source = "nn.py:mix" }
"""
BARRIER = MODEL.replace("jnp.tanh(rows)", "jax.lax.optimization_barrier(jnp.tanh(rows))")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "nn.py").write_text(MODEL)
    (tmp_path / "fusionscope.toml").write_text(FILE)
    for words in ("init --quiet --initial-branch main", "add .", "commit --quiet --message one"):
        local = ("-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *local, *words.split()], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
def check(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.chdir(project)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fusionscope", "check", *arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
        return int(leaving.value.code or 0), *capsys.readouterr()

    return run


def test_a_change_is_compared_with_its_base(project: Path, check: Run) -> None:
    """By the file of a function, and by its module, which is imported from there too."""
    source = project / "models" / "nn.py"
    source.write_text(BARRIER.replace("jnp.sin(rows)", "jnp.sort(jnp.sin(rows), axis=0)"))
    code, out, errors = check("--against", "main", "--strict", "--format", "json")
    assert (code, errors) == (1, "")
    verdicts = json.loads(out)["expectations"]
    actual = [(item["module"], item["what"]) for v in verdicts for item in v["violations"]]
    assert any(where == "mix on cpu" and "was fused by fusion" in what for where, what in actual)
    assert any(where == "total on cpu" and "sort" in what for where, what in actual)
    assert {v["violations"][0]["source"] for v in verdicts[:1]} == {f"{source}:6"}


def test_a_program_that_does_not_compile_spoils_no_other(project: Path, check: Run) -> None:
    source = project / "models" / "nn.py"
    source.write_text(MODEL.replace("+ others", "+ others[0, 0, 0]"))
    code, out, _ = check("--against", "main")
    assert code == 1
    assert "NOT MET  mix on cpu compiles" in out
    assert "at models/nn.py:6" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("mix ", "total "))]
    assert sorted(rows) == [["mix", "does", "not", "compile"], ["total", "met"]]
    assert "1 of 2 expectations not met" in out


def test_a_baseline_of_a_matrix(project: Path, check: Run) -> None:
    baseline = project / "fusions.json"
    code, out, _ = check("--baseline", "fusions.json", "--update", "--dumps", "dumps")
    assert (code, out) == (
        0,
        "new  mix on cpu\nnew  total on cpu\nwritten: fusions.json\n",
    )
    # A dump that is there is not compiled again.
    (project / "models" / "nn.py").write_text(BARRIER)
    assert check("--baseline", "fusions.json", "--dumps", "dumps")[0] == 0
    code, out, _ = check("--baseline", "fusions.json", "--module", "mix")
    assert code == 1
    assert "mix on cpu as in the baseline" in out
    # Other shapes are the same program, in a matrix.
    (project / "models" / "nn.py").write_text(MODEL)
    file = project / "fusionscope.toml"
    file.write_text(FILE.replace('["f32[64,128]"]', '["f32[128,128]"]'))
    code, out, _ = check("--baseline", "fusions.json", "--module", "total")
    assert "one_kernel" not in out  # which is about the other program
    assert "changed: arguments f32[64,128] → f32[128,128]" in out
    modules = json.loads(baseline.read_text())["modules"]
    assert [(module["program"], module["target"]) for module in modules] == [
        ("mix", "cpu"),
        ("total", "cpu"),
    ]


def test_no_compiler_at_all_is_one_line(check: Run) -> None:
    code, out, errors = check("--python", "/nowhere/python")
    assert (code, out, errors.count("\n")) == (2, "", 1)
