"""The `capture` command: what it says of what it compiles, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from sample_dumps import unlike_documented

from fusionscope.compare.difference import compare

pytestmark = pytest.mark.slow

with_gpu_plugin = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax for GPUs"
)
with_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")

MODEL = """
import jax.numpy as jnp


def step(x):
    return jnp.sin(x) * 2 + x


example_args = (jnp.ones((64, 32)),)
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return "model.py:step"


@with_jax
def test_text(run, model, tmp_path):
    result = run(model, "--output", "dump")
    assert result.code == 0
    for part in (
        "model.py:step for cpu",
        "1 argument: f32[64,32]",
        "jit_step on CPU",
        "launches",
        "What to try",
    ):
        assert part in result.out
    assert (tmp_path / "dump" / "fusionscope-capture.json").exists()
    assert "launches" not in run(model, "--output", "other", "--no-explain").out


@with_jax
def test_json_has_the_documented_fields(run, model):
    result = run(
        model, "--output", "dump", "--flag", "xla_cpu_enable_fast_math=true", "--format", "json"
    )
    document = json.loads(result.out)
    assert not unlike_documented("capture", document, besides=("captures[].notes[]",))
    assert document["captures"][0]["flags"] == ["--xla_cpu_enable_fast_math=true"]
    saved = json.loads(Path("dump/fusionscope-capture.json").read_text())
    entry = document["captures"][0]
    places = ("directory", "profile")  # which change when the dump is moved
    assert {name: saved[name] for name in entry if name not in places} == {
        name: value for name, value in entry.items() if name not in places
    }


@with_jax
def test_many_arguments_are_counted(run, model):
    source = MODEL.replace("def step(x):", "def step(all):\n    x = sum(all)")
    source = source.replace("(jnp.ones((64, 32)),)", "([jnp.ones((64, 32))] * 20,)")
    Path("model.py").write_text(source)
    out = run(model, "--output", "dump", "--no-explain").out
    assert "20 arrays, 164 kB" in out  # 20 * 64 * 32 * 4 bytes


@with_jax
@pytest.mark.parametrize("columns", ["80", "100"])
def test_several_dumps_end_with_a_table(run, model, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    variant = "nothing-is-fused: xla_disable_hlo_passes=fusion"
    result = run(model, "--variant", variant, "--output", "dumps")
    assert max(map(len, result.out.splitlines())) <= int(columns)
    *_, header, plain, second = result.out.splitlines()
    assert header.split() == "device launches bytes fused duplicated not fused".split()
    # sine, the broadcast of 2, multiply and add: one kernel, or four.
    assert plain.split()[:2] == ["cpu", "1"]
    assert second.split()[:2] == ["cpu+nothing-is-fused", "4"]
    assert plain.split()[-1] == "0" != second.split()[-1]
    assert "device  " not in run(model, "--output", "one").out


MISTAKES = [
    ("def step(x):\n    return twice(x, x[:2])", 6, "ncompatible shapes"),
    ("def step(x):\n    return x if x.sum() > 0 else -x", 10, "TracerBoolConversionError"),
    ("def step(x, y):\n    return x", 9, "missing 1 required positional argument"),
    ("def step(x:\n    return x", 9, "SyntaxError"),
    ("import nowhere", 9, "cannot be imported: ModuleNotFoundError"),
    ("raise SystemExit('usage')", 9, "cannot be imported: SystemExit: usage"),
    ("def step(x):\n    return open('nowhere')", 10, "FileNotFoundError"),
    ("def example_args():\n    return [unknown]\ndef step(x): ...", 10, "NameError"),
]


@with_jax
@pytest.mark.parametrize(("text", "line", "problem"), MISTAKES)
def test_a_mistake_of_the_user_is_shown_with_its_place(run, model, text, line, problem):
    """The innermost call in the user's files; jax's own frames only where --debug asks for them."""
    helper = "\nimport jax.numpy as jnp\n\n\ndef twice(a, b):\n    return a + b\n\n\n"
    end = "" if "example_args" in text else "\n\nexample_args = (jnp.ones((64, 32)),)\n"
    Path("model.py").write_text(helper + text + end)
    result = run(model, "--output", "dump")
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert result.errors.startswith(f"fusionscope: model.py:{line}: ")
    assert problem in result.errors
    assert "Traceback" not in result.errors


@with_jax
def test_the_traceback_is_shown_where_it_is_asked_for(model):
    Path("model.py").write_text(MODEL.replace("jnp.sin(x)", "jnp.sin(x, 3, 4)"))
    result = subprocess.run(
        [sys.executable, "-m", "fusionscope", "--debug", "capture", model],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert "return jnp.sin(x, 3, 4) * 2 + x" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("fusionscope: model.py:6: TypeError")


@with_jax
def test_variants_can_be_compared(run, model):
    variant = (
        "loops: xla_cpu_multi_thread_eigen=false xla_disable_hlo_passes=dot-library-rewriter,fusion"
    )
    result = run(model, "--variant", variant, "--output", "dumps", "--format", "json")
    plain, loops = json.loads(result.out)["captures"]
    assert (plain["directory"], loops["directory"]) == ("dumps/cpu", "dumps/cpu+loops")
    assert plain["flags"] == []
    assert len(loops["flags"]) == 2
    # Without these passes nothing is fused.
    assert not compare("dumps/cpu", "dumps/cpu+loops").is_same


@with_gpu_plugin
def test_recipes_are_tried(run, model):
    """A program as small as this is compiled as a whole."""
    step = "def step(x):\n    return lax.scan(lambda c, _: (jnp.sin(c @ c), None), x, None, 64)[0]"
    Path("model.py").write_text(f"import jax.numpy as jnp\nfrom jax import lax\n\n\n{step}\n")
    result = run(model, "--arg", "f32[64,64]", "--device", "h100", "--output", "dump")
    assert (result.code, result.errors) == (0, "")
    assert "steps of a loop in one" in result.out
    assert "(compiled)" in result.out and "not tried here" not in result.out


@with_jax
def test_one_device_that_is_missing_does_not_spoil_the_other(run, model):
    result = run(model, "--device", "cpu", "--device", "gpu", "--output", "dumps", "--no-explain")
    if result.code:  # no GPU is here
        assert (result.code, result.errors.count("\n")) == (2, 1)
        assert "no gpu is present" in result.errors
    assert "model.py:step for cpu" in result.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere.py:f"], "no such file"),
        (["step"], "is not a program"),
        (["model.py:step", "--device", "h9000"], "no device is called 'h9000'"),
        (["model.py:step", "--arg", "f32"], "expected a shape such as f32[128,256]"),
        (["model.py:step", "--flag", "xla f"], "is not a flag"),
        (["model.py:step", "--variant", "xla_f=1"], "expected 'NAME: FLAG=VALUE ...'"),
        (["model.py:step", "--variant", "a/b: xla_f=1"], "expected 'NAME: FLAG=VALUE ...'"),
        (["model.py:step", "--python", "nothing"], "cannot be run"),
    ],
)
def test_what_cannot_be_compiled_is_told_in_one_line(run, model, arguments, problem):
    result = run(*arguments)
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert problem in result.errors
