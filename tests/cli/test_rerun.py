"""The `rerun` command: what it refuses, and what it tells."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from sample_dumps import DUMPS, unlike_documented

from fusionscope import to_text
from fusionscope.advise.recipes.recipe import apply_recipe
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.explain.explain import explain_module
from fusionscope.rerun.programs import find_program

GPU, CPU = DUMPS / "h100/concatenate", DUMPS / "cpu/concatenate"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([GPU], "nothing to try"),
        ([GPU, "--rest", "rules"], "nothing to try"),
        ([DUMPS / "tpu-v5e/concatenate", "--rest", "xla"], "neither CPU nor GPU"),
        ([GPU, "--variant", "nowhere.toml"], "no such file"),
        ([GPU, "--rest", "xla", "--module", "nothing"], "no module matches"),
        (["nowhere", "--rest", "xla"], "no such file"),
        ([GPU, "--allow", "concatenate"], "expected"),
    ],
)
def test_what_cannot_be_tried_is_told_in_one_line(run, arguments, problem):
    result = run(*arguments)
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert problem in result.errors


def plan_file(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kernel = 3", "kernel = 3, expected a list"),
        ("[[kernel]]\nmembers = []", "members = ["),
        ("[[kernel]]\nmembers = ['a']\nkind = 'kLoop'", "plan.toml:3: unknown key 'kind'"),
        ("[[kernel]]\nmembers = ['a', 3]", "members[1] = 3, expected a text"),
        ("module = 3", "module = 3, expected a text"),
        ("module = 'other'\nallow = ['a -> b']", "no module matches"),
        ("[[kernel]]\nmembers = ['tanh.1', 'nothing']", "no operation before fusion is called"),
    ],
)
def test_plan_files_that_cannot_be_used(run, tmp_path, text, problem):
    result = run(CPU, "--plan", plan_file(tmp_path / "plan.toml", text))
    assert (result.code, result.out, result.errors.count("\n")) == (2, "", 1)
    assert problem in result.errors


def test_plans_for_different_modules(run, tmp_path):
    files = [
        plan_file(tmp_path / f"{name}.toml", f"module = '{name}'\nallow = ['a -> b']")
        for name in ("one", "other")
    ]
    result = run(CPU, "--variant", files[0], "--variant", files[1])
    assert result.code == 2
    assert "the plans are for one, other, expected one module" in result.errors


@with_cuda
def test_a_gpu_that_is_not_here(run, tmp_path):
    result = run(GPU, "--allow", "* -> concatenate*", "--output", tmp_path / "text")
    assert result.code == 0
    assert "the final module matches the plan" in result.out
    assert "not-fused → " in result.out
    assert "by the compiler's cost model" in result.out
    assert "not run: the GPU is not present" in result.out


@with_jax
def test_text_and_json(run, tmp_path):
    options = ["--seconds", "0", "--output"]
    result = run(CPU, "--allow", "* -> concatenate*", *options, tmp_path / "text")
    assert result.code == 0
    for words in ("matches the plan", "not-fused → fused", "numbers: ", "time ", "too few runs"):
        assert words in result.out
    result = run(CPU, "--rest", "off", *options, tmp_path / "json", "--format", "json")
    document = json.loads(result.out)
    (variant,) = document["variants"]
    assert variant["holds"]
    assert variant["variant"]["launches"] > variant["baseline"]["launches"]
    assert variant["measurement"]["timing"]["runs"] > 0
    names = ("divergence", "predicted", "requests", "unplanned", "capture")
    elsewhere = tuple(f"variants[].{name}" for name in names)
    assert not unlike_documented("rerun", document, besides=(*elsewhere, "rules.guessed[]"))


@with_jax
def test_several_variants_in_a_table(run, tmp_path):
    first = plan_file(tmp_path / "first.toml", "allow = ['* -> concatenate*']")
    second = plan_file(
        tmp_path / "second.toml",
        "module = 'jit_program'\n[[kernel]]\nmembers = ['tanh.1', 'concatenate.1']",
    )
    result = run(
        *(CPU, "--variant", first, "--variant", second, "--seconds", "0"),
        *("--output", tmp_path / "out"),
    )
    assert result.code == 0
    (table,) = re.findall(r"(?ms)^ *variant +launches.*?\Z", result.out)
    assert [line.split()[0] for line in table.splitlines()] == ["variant", "first", "second"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"first", "second"}


@with_jax
def test_flags_alone(run, tmp_path):
    result = run(
        *(CPU, "--flag", "xla_cpu_enable_fast_math=true", "--no-run", "--format", "json"),
        *("--output", tmp_path / "out"),
    )
    (variant,) = json.loads(result.out)["variants"]
    assert variant["plan"] == "--xla_cpu_enable_fast_math=true"
    assert variant["measurement"] is None
    assert variant["holds"]


@with_jax
@pytest.mark.parametrize(
    "flags",
    [
        [
            "xla_backend_extra_options=xla_cpu_use_multi_output_fusion",
            "xla_cpu_experimental_ynn_fusion_type=-reduce",
            "xla_disable_hlo_passes=dot-library-rewriter,HLO passes after layout assignment",
            "xla_cpu_enable_fast_math",
        ],
        [
            "xla_cpu_experimental_ynn_fusion_type=dot,LIBRARY_FUSION_TYPE_REDUCE",
            "xla_cpu_enable_fast_math=true",
        ],
        ["xla_cpu_experimental_ynn_fusion_type="],
    ],
    ids=["names alone", "values", "no value"],
)
def test_a_program_runs_with_every_notation_of_a_flag(run, tmp_path, flags):
    options = [word for flag in flags for word in ("--flag", flag)]
    options += ["--seconds", "0", "--output", tmp_path / "dump", "--format", "json"]
    result = run(CPU, *options)
    assert result.code == 0, result.out
    (variant,) = json.loads(result.out)["variants"]
    assert variant["plan"] == " ".join(f"--{flag}" for flag in flags)
    assert variant["measurement"]["problem"] == ""


@with_jax
def test_a_second_dump_goes_beside_the_first(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("fusionscope-rerun", "fusionscope-rerun-2"):
        flag = "xla_cpu_enable_fast_math=false"
        assert f"dumped in {name}\n" in run(CPU, "--flag", flag, "--no-run").out
        assert (tmp_path / name).is_dir()


@with_jax
@pytest.mark.long
def test_the_self_test_as_json(run, tmp_path, monkeypatch):
    monkeypatch.setattr("fusionscope.study.self_test._NAMES", ("elementwise",))
    result = run("--self-test", "--seconds", "0", "--output", tmp_path / "out", "--format", "json")
    document = json.loads(result.out)
    assert document["device"] == "cpu"
    assert result.code == (0 if document["holds"] else 1)
    assert document["holds"] == all(item["holds"] is not False for item in document["checks"])
    assert not unlike_documented("self_test", document)


LOOP = """
import jax
from jax import lax, numpy as jnp

def step(x):
    return lax.fori_loop(0, 12, lambda _, y: jnp.sin(y) * y[::-1] + 1, x)

example_args = (jax.ShapeDtypeStruct((512,), "float32"),)
"""


@with_jax
def test_a_plan_for_a_rewritten_program(run, tmp_path):
    """As `tune` writes it: a loop unrolled by four."""
    (tmp_path / "model.py").write_text(LOOP)
    program = read_program(f"{tmp_path / 'model.py'}:step")
    assert capture(program, read_target("cpu"), tmp_path / "dump").has_stages
    (module,) = open_dump(tmp_path / "dump").modules
    recipe = UnrollLoop(times=4, is_whole=True)
    output = apply_recipe(recipe, find_program(module), "cpu")
    (tmp_path / "unrolled.hlo").write_text(to_text(output.module))
    plan = plan_file(tmp_path / "plan.toml", "program = 'unrolled.hlo'")
    words = (tmp_path / "dump", "--plan", plan, "--seconds", "0")
    result = run(*words, "--output", tmp_path / "out", "--format", "json")
    assert result.code == 0
    (variant,) = json.loads(result.out)["variants"]
    assert variant["plan"] == "the rewritten program, the compiler's own plan"
    assert variant["baseline"]["launches"] == explain_module(module).summary.launches
    # The compiler makes one function of the loop and one of the unrolled loop.
    assert variant["variant"]["launches"] == variant["baseline"]["launches"]
    assert variant["measurement"]["numbers"] in ("equal", "rounded differently")
    assert (variant["changed"], variant["same_kernels"]) == ([], False)
    (tmp_path / "unrolled.hlo").write_text("no program")
    refused = run(*words, "--output", tmp_path / "refused")
    assert (refused.code, refused.errors.count("\n")) == (2, 1)
    assert "unrolled.hlo:1:" in refused.errors


@with_jax
@pytest.mark.long
def test_explain_says_what_a_run_took_beside_its_bound(run_command):
    """The bound is by the parameters and the results, each moved once."""
    result = run_command("explain", CPU, "--compile", "--format", "json")
    assert result.code == 0, result.errors
    (module,) = json.loads(result.out)["modules"]
    facts = module["run"]
    assert facts["runs"] > 1
    assert 0 < facts["at_best_us"] < facts["time_us"]
    assert facts["at_best_bytes"] == 4 * (1024 * (128 + 128 + 64) + 320 + 1024 * (320 + 160))
