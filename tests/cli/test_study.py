"""The `study` command: its tables, and steps that fail."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from sample_dumps import ROOT, unlike_documented

from fusionscope.dump import open_dump
from fusionscope.history.kernels import launches_of

with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")

PROGRAM = """
import jax.numpy as jnp
from jax import lax


def apart(x):
    return lax.optimization_barrier(jnp.exp(x)) + 1.0


def together(x):
    return jnp.exp(x) + 1.0
"""

STUDY = """
title = "A barrier"
sizes = [64]
work = 2
paper = ["it costs <b>much</b>"]

[[steps]]
name = "apart"
what = "with a barrier"
program = "model.py:apart"
arguments = ["f32[{n},8]"]

[[steps]]
name = "together"
what = "without"
program = "model.py:together"
arguments = ["f32[{n},8]"]
paper = "2x"

[[steps]]
name = "forbidden"
of = "together"
forbid = ["exponential -> add"]

[[steps]]
name = "no-fusion"
of = "together"
disable = ["fusion", "priority-fusion", "multi_output_fusion"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(PROGRAM)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@with_jax
def test_versions_side_by_side(run, folder):
    result = run(folder, "--device", "cpu", "--device", "h100", "--seconds", "0.01",
               "--output", folder / "out", "--format", "json")  # fmt: skip
    document = json.loads(result.out)
    here, elsewhere = document["tables"]
    assert here["not_run"] == ""
    # Unfused, the constant is broadcast by a kernel of its own.
    assert [row["kernels"] for row in here["rows"]] == [2, 1, 2, 3]
    assert [row["launches"] for row in here["rows"]] == [2, 1, 2, 3]
    for row in here["rows"]:
        assert not row["problem"]
        assert row["race"]["run_ns"] > 0
        assert row["compile_s"] > 0
        profiled = row["profiled"]
        assert not profiled["problem"]
        assert 0 < profiled["longest"]["time_us"] <= profiled["kernels_us"]
        (module,) = open_dump(Path(row["dump"])).modules
        kernels = {item.name for item in launches_of(module.read(module.final), "cpu")}
        assert profiled["longest"]["name"] in kernels
        assert row["runs_known"]
        assert row["speed_up"]["times"] == 1 / row["race"]["ratio"]["value"]
        assert list(Path(row["dump"]).glob("module_*after_optimizations.txt"))
    # A fifth of the bytes: what is between the two is written and read.
    first, second, third, _ = (row["bytes_moved"] for row in here["rows"])
    assert first == third == 2 * second == 4 * 64 * 8 * 4
    assert elsewhere["not_run"]
    if importlib.util.find_spec("jax_cuda13_plugin") is None:
        assert all(row["problem"] for row in elsewhere["rows"])
        assert result.code == 1
        return
    assert result.code == 0
    assert [row["kernels"] for row in elsewhere["rows"]][1:] == [1, 2, 3]
    times = [row["estimate"]["microseconds"] for row in elsewhere["rows"]]
    assert times[0] > times[1]
    assert elsewhere["rows"][1]["speed_up"] == {"times": times[0] / times[1], "is_least": False}
    elsewhere = ("tables[].rows[].refusal.", "tables[].rows[].boundaries[]")
    assert not unlike_documented("study", document, besides=elsewhere)


@with_jax
def test_a_step_that_fails_does_not_spoil_the_rest(run, folder):
    (folder / "study.toml").write_text(STUDY.replace("model.py:apart", "model.py:nothing"))
    result = run(folder, "--device", "cpu", "--size", "16", "--seconds", "0.01",
               "--output", folder / "out", "--format", "markdown")  # fmt: skip
    assert result.code == 1
    assert "cpu, size 16, for each of 2: run here" in result.out
    assert "nothing" in result.out
    assert "| together | 1 | 0.50 |" in result.out
    assert "&lt;b>much" in result.out


@with_jax
def test_the_table_on_a_terminal_names_what_refuses(run, folder):
    result = run(folder, "--device", "cpu", "--seconds", "0.01", "--output", folder / "out")
    assert result.code == 0
    assert "A barrier\n" in result.out
    assert "paper: it costs <b>much</b>" in result.out
    assert f"fusionscope explain {folder / 'out' / 'cpu' / '64' / 'apart'}" in result.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "no such file"),
        ([ROOT / "samples/cartpole", "--device", "abacus"], "abacus"),
        ([ROOT / "samples/cartpole", "--size", "0"], "0"),
    ],
)
def test_what_cannot_be_studied_is_told(run, arguments, problem):
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert problem in result.errors
    assert "Traceback" not in result.errors
