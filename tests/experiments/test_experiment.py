"""Experiments with the compiler itself, where jax is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusionscope import UnusableInput
from fusionscope.capture.capture import capture
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.capture.targets import Program, ProgramKind, read_target
from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.experiments.asking import Compiler
from fusionscope.experiments.experiment import Experiment, experiment
from fusionscope.experiments.experiments import ends_of
from fusionscope.experiments.program import Answer
from fusionscope.report.experiments import answer_in_words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax"),
]
with_tpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")

# Three refusals whose reasons are known: what computes tanh twice is too expensive, a sort is never
# fused, and a constant of several elements stays outside.
TEXT = """HloModule step

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = f32[64,96]{1,0} parameter(0)
  costly = f32[64,96]{1,0} tanh(x), metadata={op_name="costly"}
  one = f32[64,96]{1,0} abs(costly), metadata={op_name="one"}
  two = f32[64,96]{1,0} floor(costly), metadata={op_name="two"}
  cheap = f32[64,96]{1,0} multiply(x, x), metadata={op_name="cheap"}
  sorted = f32[64,96]{1,0} sort(cheap), dimensions={1}, to_apply=less, metadata={op_name="sorted"}
  y = f32[3]{0} parameter(1)
  several = f32[3]{0} constant({1, 2, 4}), metadata={op_name="several"}
  sum = f32[3]{0} add(y, several), metadata={op_name="sum"}
  ROOT result = (f32[64,96]{1,0}, f32[64,96]{1,0}, f32[64,96]{1,0}, f32[3]{0}) \
tuple(one, two, sorted, sum)
}
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("experiments")
    file = directory / "step.hlo"
    file.write_text(TEXT)
    program = Program(kind=ProgramKind.HLO, file=file)
    return capture(program, read_target("cpu"), directory / "dump").directory


@pytest.fixture(scope="module")
def experiments(dump: Path) -> dict[str, Experiment]:
    """The experiments on every pair, by the names in the program."""
    (module,) = open_dump(dump).modules
    before, final = ends_of(module)
    by_name = {
        instruction.op_name: instruction.name
        for instruction in before.walk()
        if instruction.op_name
    }
    constants = [
        instruction.name
        for instruction in before.walk()
        if instruction.shape.dimensions == (3,) and instruction.opcode == "constant"
    ]
    pairs = {
        "costly -> one": (by_name["costly"], by_name["one"]),
        "cheap -> sorted": (by_name["cheap"], by_name["sorted"]),
        "several -> sum": (constants[0], by_name["sum"]),
    }
    with Compiler(module, python=sys.executable, limit_s=60, cache=None) as compiler:
        return {key: experiment(before, final, *pair, compiler) for key, pair in pairs.items()}


def test_a_producer_that_others_read_is_fused_without_them(experiments):
    first = experiments["costly -> one"]
    assert first.around == "other users"
    assert first.cause == "other users"
    assert "which is" not in answer_in_words(first)
    assert answer_in_words(first) == (
        "not fused because other operations read the producer, too (floor); without them, the "
        "compiler fuses it"
    )
    assert {flip.factor for flip in first.flips} >= {"other users", "producer's operation"}


def test_a_sort_is_the_cause_of_its_own_refusals(experiments):
    first = experiments["cheap -> sorted"]
    assert (first.around, first.cause) == ("the pair", "consumer's operation")
    answers = {question.factor: question.answer for question in first.questions}
    assert answers["producer's operation"] is Answer.NOT_FUSED
    assert "the consumer is a sort; if it is an add, the compiler fuses it" in answer_in_words(
        first
    )


def test_a_constant_with_several_elements_is_fused_with_one(experiments):
    assert experiments["several -> sum"].cause == "elements of a constant"


def test_a_program_that_ends_the_compiler_does_not_end_the_rest():
    text = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x)\n}\n"
    with CompilerProcess(read_target("cpu"), limit_s=30) as compiler:
        assert "negate" in compiler.compile(text).text
        assert compiler.compile("HloModule m\n\nnothing").problem
        assert compiler._child is not None
        compiler._child._child.kill()
        assert compiler.compile(text).problem
        assert "negate" in compiler.compile(text).text


def test_the_command_prints_an_answer_and_keeps_it(dump, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ["experiment", str(dump), "tanh -> abs", "--format", "json"]
    visible = CliRunner().invoke(cli, command)
    assert visible.exit_code == 0, visible.output
    first = json.loads(visible.stdout)
    assert first["schema"] == "fusionscope.experiments/1"
    (pair,) = first["pairs"]
    assert pair["experiment"]["cause"] == "other users"
    assert pair["experiment"]["flips"][0]["answer"] == "fused"
    assert pair["experiment"]["threshold"] is None
    assert first["compiled"] > 0
    again = json.loads(CliRunner().invoke(cli, command).stdout)
    assert again["compiled"] == 0
    assert again["pairs"] == first["pairs"]


def test_a_pair_that_is_not_there_is_one_line(dump):
    command = ["experiment", str(dump)]
    with pytest.raises(UnusableInput, match="no refused pair matches 'a -> b'"):
        CliRunner().invoke(cli, [*command, "a -> b"], catch_exceptions=False, standalone_mode=False)
    with pytest.raises(UnusableInput, match="expected 'PRODUCER -> CONSUMER'"):
        CliRunner().invoke(cli, [*command, "a"], catch_exceptions=False, standalone_mode=False)


@with_tpu
def test_a_tpu_that_is_absent_is_asked(tmp_path):
    file = tmp_path / "step.hlo"
    file.write_text(TEXT)
    program = Program(kind=ProgramKind.HLO, file=file)
    output = capture(program, read_target("tpu:v5e"), tmp_path / "dump").directory
    command = ["experiment", str(output), "* -> *", "--no-cache"]
    visible = CliRunner().invoke(cli, [*command, "--top", "9", "--format", "json"])
    assert visible.exit_code == 0, visible.output
    reported = json.loads(visible.stdout)
    assert reported["compiler"].startswith("libtpu")
    assert any(item["experiment"]["reproduced"] for item in reported["pairs"])


@with_tpu
def test_a_gather_of_which_a_tpu_makes_a_kernel_is_cut_out(tmp_path):
    file = tmp_path / "rows.py"
    file.write_text(
        "import jax.numpy as jnp\n\n\n"
        "def rows(table, places):\n    return jnp.exp(table)[places] @ table.T\n\n\n"
        "example_args = (jnp.zeros((2048, 64)), jnp.zeros((512,), jnp.int32))\n"
    )
    program = Program(kind=ProgramKind.FUNCTION, file=file, name="rows")
    output = capture(program, read_target("tpu:v5e"), tmp_path / "dump").directory
    (module,) = open_dump(output).modules
    before, final = ends_of(module)
    (kernel,) = (instruction for instruction in before.walk() if instruction.opcode == "fusion")
    with Compiler(module, python=sys.executable, limit_s=60, cache=None) as compiler:
        first = experiment(before, final, kernel.operands[0].name, kernel.name, compiler)
    assert first.cause == "producer's operation and consumer's operation"  # a copy and a gather
    assert " gather(" in first.program and "custom-call" not in first.program
