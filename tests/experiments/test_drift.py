"""Thresholds that moved. The true values are those of XLA's sources, as the rules' pages have
them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusionscope import UnusableInput
from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.experiments.drift import find_drift
from fusionscope.rules.changes import Changes
from fusionscope.verify.thresholds import _fitting, agrees, fitting_thresholds
from fusionscope.versions.known import compiler_named

SAMPLES = Path(__file__).parents[2] / "samples/dumps"
LOOP = SAMPLES / "cpu/loop"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
PLANTED = ("ynn-preferred", "min_elements", 8192)  # 4096 in XLA


def planted_rules():
    rules = compiler_named("cpu-0.12")
    assert rules is not None
    return Changes(thresholds=(PLANTED,)).apply(rules)


@pytest.mark.parametrize(("least", "most"), [(4000, 5000), (1, 100), (4096, 4096), (0, 10**6)])
def test_an_interval_is_found_to_the_last_digit(least, most):
    actual = _fitting(4096, lambda value: least <= value <= most)
    assert actual is not None
    assert (actual.least or 0, actual.most or 10**6) == (least, most)


def test_of_several_fitting_values_the_next_by_ratio_counts():
    actual = _fitting(32, lambda value: value in (6, 64))
    assert actual is not None and (actual.least, actual.most) == (64, 64)


def test_there_may_be_no_fitting_value():
    assert _fitting(4096, lambda value: False) is None


def test_a_dump_alone_bounds_the_threshold():
    (module,) = open_dump(LOOP).modules
    (actual,) = fitting_thresholds([module], planted_rules(), "dot-library-rewriter")
    assert (actual.rule, actual.name, actual.known) == PLANTED
    assert actual.least is None and actual.most is not None and 4096 <= actual.most < 8192


def test_nothing_is_asked_where_the_rules_agree():
    result = CliRunner().invoke(cli, ["verify", str(LOOP), "--drift", "--python", "/nowhere"])
    assert result.exit_code == 0
    assert result.output == "jit_program: the rules cpu-0.12 agree with every pair\n"


def test_a_tpu_has_no_rules_to_replay():
    (module,) = open_dump(SAMPLES / "tpu-v5e/softmax").modules
    with pytest.raises(UnusableInput, match="no pass in the dump can be replayed"):
        find_drift(module, None, top=1, python=sys.executable)


def test_a_pass_that_does_not_run_agrees_with_nothing():
    (module,) = open_dump(LOOP).modules
    with pytest.raises(UnusableInput, match="copy_fusion does not run in it"):
        agrees(module, planted_rules(), "copy_fusion")


@with_jax
@pytest.mark.slow
def test_the_compiler_is_asked_for_the_threshold():
    (module,) = open_dump(LOOP).modules
    actual = find_drift(module, planted_rules(), top=1, python=sys.executable)
    (pair,) = actual.pairs
    (threshold,) = pair.thresholds
    assert (threshold.rule, threshold.name, threshold.known) == PLANTED
    assert 4000 < threshold.least <= 4096 <= threshold.most < 4200
    assert 0 < pair.differing < pair.programs


@with_jax
@pytest.mark.long
def test_a_condition_that_is_another_one_is_no_threshold(tmp_path):
    """In 0.11, 128 elements make a concatenate long; in 0.12, 64 bytes of at least 2048 do."""
    file = tmp_path / "model.py"
    file.write_text(
        "import jax.numpy as jnp\n"
        "def step(x, y):\n"
        "    return jnp.concatenate([jnp.exp(x), y * 2], axis=1) + 1.0\n"
    )
    dump, out = tmp_path / "dump", tmp_path / "drift.json"
    arguments = ["--arg", "f32[64,64]", "--arg", "f32[64,32]", "--device", "cpu"]
    captured = CliRunner().invoke(
        cli, ["capture", f"{file}:step", *arguments, "--output", str(dump), "--no-explain"]
    )
    assert captured.exit_code == 0, captured.output
    options = ["verify", str(dump), "--drift", "--rules", "cpu-0.11", "--top", "1"]
    result = CliRunner().invoke(cli, [*options, "--format", "json", "--output", str(out)])
    assert result.exit_code == 0, result.output
    (pair,) = json.loads(out.read_text())["pairs"]
    assert pair["outcome"] == "not-fused" and pair["replayed"] == "fused"
    assert not pair["thresholds"]
    changes = {item["what"]: item["after"] for item in pair["agreements"]}
    assert changes["the dimension of the concatenate"] == "0"
