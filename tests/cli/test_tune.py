"""The `tune` command: what it refuses, and what it finds."""

from __future__ import annotations

import importlib.util
import json
import tomllib

import pytest
from sample_dumps import DUMPS, unlike_documented

from fusionscope.dump import open_dump
from fusionscope.tune.search import tune

CPU = DUMPS / "cpu/concatenate"
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([DUMPS / "tpu-v5e/concatenate"], "no program is run on TPUs"),
        ([CPU, "--module", "nothing"], "no module matches"),
        (["nowhere"], "no such file"),
    ],
)
def test_what_cannot_be_tuned_is_told_in_one_line(run, arguments, problem):
    result = run(*arguments)
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert problem in result.errors


@with_jax
def test_what_was_tried_and_the_best_plan(run, tmp_path):
    best = tmp_path / "best.toml"
    result = run(CPU, "--budget", "10", "--output", best, "--format", "json")
    document = json.loads(result.out)
    assert not unlike_documented("tune", document, besides=("rules.", "best."))
    assert any(item["ratio"] for item in document["attempts"])
    # A machine that does much else beside gets no further in ten seconds than the first plans.
    assert "pass" in {item["kind"] for item in document["attempts"]}
    assert result.code == (0 if document["best"] else 1)
    assert best.exists() == bool(document["best"])
    assert not best.with_suffix(".unconfirmed.toml").exists()
    attempts = json.loads(best.with_suffix(".tried.json").read_text())
    assert {item["changes"] for item in attempts["attempts"]} <= {
        item["changes"] for item in document["attempts"]
    }
    if document["best"]:  # unless the machine makes much noise
        plan = tomllib.loads(best.read_text())
        assert plan["module"] == "jit_program"
        kernels = document["best"]["kernels"]
        assert not document["best"]["not_profiled"]
        assert kernels["gone"] or kernels["made"]
        assert (best.parent / plan["dump"]).resolve() == CPU


@with_jax
@pytest.mark.long
def test_each_plan_that_is_faster_so_far_is_handed_on():
    """A search that is killed leaves the last of them."""
    (module,) = open_dump(CPU).modules
    designs = []
    tuning = tune(module, budget_s=5, keep=designs.append)
    faster = {
        attempt.changes
        for attempt in tuning.attempts  # a later one of the same changes may find it no faster
        if attempt.ratio and attempt.ratio.value < 1
    }
    assert {str(design) for design in designs} <= faster


@with_jax
def test_a_replay_that_takes_too_long_is_stopped_and_not_kept(run, tmp_path, monkeypatch):
    monkeypatch.setattr("fusionscope.tune.search._LEAST_REPLAY_S", 0.0)
    best = tmp_path / "best.toml"
    result = run(CPU, "--budget", "0.1", "--output", best, "--format", "json")
    document = json.loads(result.out)
    assert document["left"] > 0
    stopped = [
        item["changes"]
        for item in document["attempts"]
        if item["problem"].startswith("its replay was stopped")
    ]
    assert stopped
    attempts = json.loads(best.with_suffix(".tried.json").read_text())
    assert not set(stopped) & {item["changes"] for item in attempts["attempts"]}


@with_cuda
def test_for_an_absent_gpu_its_cost_model_decides(run, tmp_path):
    best = tmp_path / "best.toml"
    result = run(DUMPS / "h100/reductions", "--output", best, "--format", "json")
    assert result.code == 0
    actual = json.loads(result.out)
    # A value that two reductions read is computed in both, although the compiler writes it.
    assert actual["best"]["measurement"] is None
    before, after = actual["best"]["estimates_us"]
    assert after < before
    estimates = [item["estimated"] for item in actual["attempts"] if item["estimated"]]
    assert after / before == pytest.approx(min(estimates), rel=1e-6)
    assert not any(item["ratio"] for item in actual["attempts"])
    again = run(DUMPS / "h100/reductions", "--output", best)
    assert "compiled, not measured" in again.out
