"""Changes with which over-fused kernels spill less, compiled; a script stands for ptxas."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.explain import Selection, explain
from fusionscope.findings.resources.facts import SpillCost, SpillTrial, over_fused

BEFORE = SpillCost(
    launches=1, bytes_moved=1000, time_us=10.0, spilling=1, spill_bytes=5000, spill_us=20.0
)
PROGRAM = """
import jax, jax.numpy as jnp

def step(*x):
    x = [jnp.roll(e, i + 1, 0) * e + jnp.sin(e) for i, e in enumerate(x)]
    for k in range(3):
        y = [*x, *x, *x, *x]
        x = [y[i] * y[i + k + 1] + jnp.exp(-y[3 * i + k]) for i in range(len(x))]
    return sum(x)

example_args = (jax.ShapeDtypeStruct((256, 256), jnp.float32),) * 12
"""
# Stands for ptxas: a kernel of more lines than SHORT spills a byte a thread for each further line.
PTXAS = """#!PYTHON
import re, sys
from pathlib import Path

files = [each for each in sys.argv if each.endswith(".ptx")]
text = Path(files[0]).read_text() if files else ""
for name, body in re.findall(r"[.]entry (\\w+)(.*?)^}", text, re.DOTALL | re.MULTILINE):
    more = max(0, body.count(chr(10)) - SHORT)
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'", file=sys.stderr)
    spills = f"{more} bytes spill stores, {more} bytes spill loads"
    print(f"    0 bytes stack frame, {spills}", file=sys.stderr)
    print("ptxas info    : Used 64 registers, used 0 barriers", file=sys.stderr)
"""


def test_a_change_helps_if_less_is_spilled_and_no_time_is_lost() -> None:
    split = replace(BEFORE, launches=2, spill_bytes=100, time_us=15.0, spill_us=0.4)
    slow = replace(BEFORE, launches=9, spill_bytes=0, time_us=31.0, spill_us=0.0)
    equal = replace(BEFORE, launches=2)
    assert split.is_better_than(BEFORE)
    assert not slow.is_better_than(BEFORE)
    assert not equal.is_better_than(BEFORE)
    attempts = [SpillTrial("a", equal), SpillTrial("b", None, "no"), SpillTrial("c", slow)]
    assert over_fused(("k",), BEFORE, tuple(attempts)).best is None
    attempts += [SpillTrial("d", split), SpillTrial("e", replace(split, time_us=14.0))]
    best = over_fused(("k",), BEFORE, tuple(attempts)).best
    assert best == "e"


def run(*arguments: object) -> str:
    ended = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
def test_what_helps_is_compiled_and_comes_true(tmp_path, monkeypatch) -> None:
    program, ptxas = tmp_path / "program.py", tmp_path / "ptxas"
    program.write_text(PROGRAM)
    dump, changed = tmp_path / "dump", tmp_path / "changed"
    run(
        "capture", f"{program}:step", "--device", "h100", "--output", dump,
        "--flag", "xla_dump_emitter_re=.*", "--flag", "xla_gpu_autotune_level=0",
    )  # fmt: skip
    (module,) = open_dump(dump).modules
    longest = max(text.count(b"\n") for text in module.ptx)
    ptxas.write_text(PTXAS.replace("PYTHON", sys.executable).replace("SHORT", str(longest // 2)))
    ptxas.chmod(0o755)
    monkeypatch.setenv("PTXAS", str(ptxas))
    visible = run("explain", dump, "--resources", "--compile", "--format", "json")
    actual = json.loads(visible)["modules"][0]["over_fused"]
    (best,) = [trial for trial in actual["tried"] if trial["change"] == actual["best"]]
    assert 0 <= best["after"]["spill_bytes"] < actual["before"]["spill_bytes"]
    assert best["after"]["launches"] > actual["before"]["launches"] == 1
    run(
        "rerun", dump, *shlex.split(best["change"]), "--flag", "xla_dump_emitter_re=.*",
        "--output", changed,
    )  # fmt: skip
    (module,) = explain(open_dump(changed), Selection(resources=True)).modules
    resources = [kernel.resources for kernel in module.kernels for _ in range(kernel.runs)]
    assert sum(item.spill_bytes for item in resources if item) == best["after"]["spill_bytes"]
    assert module.summary.launches == best["after"]["launches"]
