"""The `bisect` command: what it refuses, and what it finds."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from sample_dumps import DUMPS, unlike_documented

from fusionscope.dump import open_dump
from fusionscope.explain.explain import explain_module

CPU = DUMPS / "cpu/elementwise"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([DUMPS / "h100/concatenate"], "the GPU is not present, and bisecting has to run it"),
        ([DUMPS / "tpu-v5e/concatenate"], "no program is run on TPUs"),
        ([CPU, "--module", "nothing"], "no module matches"),
        ([CPU, "--reference", "nowhere"], "expected none, float64, a dump or an .npz file"),
        ([CPU, "--reference", "none", "--flag", "a=b"], "expected one of --reference, --flag"),
        ([CPU, "--predicate", "check.py"], "expected FILE:FUNCTION"),
        ([CPU, "--predicate", "check.py:f", "--tolerance", "1"], "expected no --tolerance"),
        ([CPU, "--by", "time", "--tolerance", "0"], "compares times with those of the whole plan"),
        (["nowhere"], "no such file"),
    ],
)
def test_what_cannot_be_bisected_is_told_in_one_line(run, arguments, problem):
    result = run(*arguments)
    result.check_refused(problem)


@with_jax
def test_the_pair_that_changes_the_bits_and_a_script_that_shows_it(run, tmp_path):
    """A product and a sum are rounded once if they are in one kernel, and twice if they are not."""
    wrong = tmp_path / "wrong"
    result = run(CPU, "--tolerance", "0", "--output", wrong, "--format", "json")
    assert result.code == 0
    document = json.loads(result.out)
    assert not unlike_documented("bisect", document, besides=("cost.",))
    (kernel,) = document["found"]
    assert [item["opcode"] for item in kernel["operations"]] == ["multiply", "add"]
    assert "elementwise.py:" in kernel["operations"][0]["source"]
    assert kernel["of"] > len(kernel["operations"])
    (pair,) = kernel["pairs"]
    assert [pair["producer"], pair["consumer"]] == [e["name"] for e in kernel["operations"]]
    assert kernel["reproducer"]["differs"]
    assert not kernel["reproducer"]["problem"]
    again = subprocess.run(
        [sys.executable, wrong / "reproduce.py"], capture_output=True, text=True, check=True
    )
    assert again.stdout.splitlines() == kernel["reproducer"]["output"]
    (module,) = open_dump(CPU).modules
    names = {(p.producer.name, p.consumer.name) for p in explain_module(module).pairs}
    assert (pair["producer"], pair["consumer"]) in names


@with_jax
def test_rounding_is_not_wrong(run):
    result = run(CPU)
    assert result.code == 1
    assert "rounded differently" in result.out
    assert "the results are not wrong" in result.out


@with_jax
def test_a_predicate_decides(run, tmp_path):
    check = tmp_path / "check.py"
    check.write_text(
        "import numpy\n"
        "def never(results):\n    return False\n"
        "def always(results):\n    return bool(numpy.isfinite(results[0]).any())\n"
        "def broken(results):\n    return results[99]\n"
    )
    result = run(CPU, "--predicate", f"{check}:never")
    assert (result.code, "the results are not wrong" in result.out) == (1, True)
    result = run(CPU, "--predicate", f"{check}:always")
    assert (result.code, "wrong without any fusion, too" in result.out) == (1, True)
    run(CPU, "--predicate", f"{check}:broken").check_refused("the predicate failed: IndexError")
    run(CPU, "--predicate", f"{check}:nothing").check_refused("the predicate cannot be loaded")


@with_jax
@pytest.mark.long
def test_other_references(run, tmp_path):
    import numpy

    result = run(CPU, "--flag", "xla_disable_hlo_passes=fusion", "--tolerance", "0")
    assert "against --xla_disable_hlo_passes=fusion" in result.out
    assert "multiply" in result.out
    result = run(CPU, "--reference", CPU, "--tolerance", "0")
    assert (result.code, "the results are not wrong" in result.out) == (1, False)  # nor unfused
    assert "wrong without any fusion, too" in result.out
    arrays = tmp_path / "arrays.npz"
    numpy.savez(arrays, numpy.zeros(3, "float32"))
    run(CPU, "--reference", arrays).check_refused("the reference has the results float32[3]")
    second = run(CPU, "--reference", DUMPS / "cpu/softmax")
    second.check_refused("the reference jit_program is another program: its parameters and result")
    arrays.write_text("no arrays")
    run(CPU, "--reference", arrays).check_refused("expected an .npz of plain arrays")
    run(CPU, "--flag", "nonsense=1").check_refused("Unknown flag in XLA_FLAGS: --nonsense=1")


@with_jax
@pytest.mark.long
def test_by_time(run):
    document = json.loads(run(CPU, "--by", "time", "--format", "json").out)
    assert document["reference"] is None
    assert document["cost"]["whole_s"] > 0
    assert document["cost"]["unfused_s"] > document["cost"]["whole_s"] / 2
    assert bool(document["problem"]) != bool(document["found"])
