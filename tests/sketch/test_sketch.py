"""Sketches of kernels: what they compute is what the compiler's kernels compute."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusionscope import UnusableInput
from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.experiments.kernels import take_apart
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.rerun.running import Numbers
from fusionscope.sketch.sketch import Sketch, sketch

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
ATTENTION = DUMPS / "h100" / "attention"
CONCATENATE = DUMPS / "h100" / "concatenate"
# One pair or kernel of a kind: products, rows, several results, a reduction of several values, a
# gather, what the compiler writes as bitcasts.
SKETCHED = (
    ("h100/attention", "*"),
    ("h100/softmax", "*"),
    ("h100/concatenate", "tanh.1.0 -> concatenate.1.0"),
    ("h100/concatenate", "input_concatenate*"),
    ("h100/reductions", "*"),
    ("h100/cartpole", "loop_select_fusion"),
    ("h100/elementwise", "*"),
    ("cpu/attention", "*fusion*"),
    ("cpu/concatenate", "*"),
    ("cpu/reductions", "*"),
)


def written(dump: Path, kernel: str, *options: str) -> str:
    ended = CliRunner().invoke(cli, ["draw", str(dump), kernel, "--kernel-sketch", *options])
    if ended.exception is not None:
        raise ended.exception
    return ended.stdout


def of_text(text: str) -> Sketch:
    """The sketch of all of a program of one kernel."""
    module = parse(f"HloModule m\n{text}")
    return sketch(module, [module.entry.root.name])


@pytest.mark.compiler
@pytest.mark.parametrize(("dump", "kernel"), SKETCHED)
def test_the_numbers_are_those_of_the_program(dump: str, kernel: str, tmp_path: Path) -> None:
    text = written(DUMPS / dump, kernel)
    assert "Checked against the compiler's code on random inputs: reference " in text
    file = tmp_path / "kernel.py"
    file.write_text(text)
    # The two functions of the file, apart from the comparison that it reports.
    script = (
        "import kernel, jax, numpy, inspect\n"
        "count = len(inspect.signature(kernel.reference).parameters)\n"
        "assert count and kernel.STEPS"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


@pytest.mark.compiler
def test_a_wrong_sketch_is_noticed() -> None:
    from fusionscope.sketch.checking import compare

    text = "ENTRY e { x = f32[8,16] parameter(0)\n ROOT r = f32[8,16] exponential(x) }"
    drawn = of_text(text)
    header = "import jax, numpy as np\nfrom jax import lax, numpy as jnp\n"
    header += f"from jax.experimental import pallas as pl\nSTEPS = {drawn.steps}\n"
    right = compare(drawn, header + drawn.code, python=sys.executable, limit_s=100)
    assert {result.verdict for result in (*right.reference, *right.kernel)} <= {
        Numbers.EQUAL,
        Numbers.ROUNDED,
    }
    wrong_code = header + drawn.code.replace("lax.exp(", "lax.sin(")
    wrong = compare(drawn, wrong_code, python=sys.executable, limit_s=100)
    assert wrong.reference[0].verdict is wrong.kernel[0].verdict is Numbers.DIFFERENT


def test_rows_of_attention_are_shared() -> None:
    """A row of scores needs all keys and values, and no other row of queries."""
    (module,) = open_dump(ATTENTION).modules
    assert module.final is not None
    final = module.read(module.final)
    kernels = [i.name for i in final.entry.instructions if i.opcode == "fusion"]
    drawn = sketch(final, kernels)
    assert drawn.steps > 1
    specs = [line.strip() for line in drawn.code.splitlines() if "pl.BlockSpec(" in line]
    divided = [spec for spec in specs if "// STEPS" in spec]
    assert len(specs) == 4 and len(divided) == 2, specs


@pytest.mark.parametrize(
    ("operation", "steps_of"),
    [
        ("f32[64,128] reverse(x), dimensions={1}", 64),
        ("f32[128,64] transpose(x), dimensions={1,0}", 64),
        ("f32[8192] reshape(x)", 64),
        ("f32[64,64] slice(x), slice={[0:64], [32:96]}", 64),
    ],
)
def test_what_moves_data_along_a_dimension_keeps_the_others_apart(
    operation: str, steps_of: int
) -> None:
    drawn = of_text(
        f"ENTRY e {{ x = f32[64,128] parameter(0)\n ROOT r = {operation} }}",
    )
    assert steps_of % drawn.steps == 0 and drawn.steps > 1


def test_one_program_has_what_cannot_be_shared() -> None:
    text = """
        ENTRY e {
          x = f32[64,128] parameter(0)
          ROOT r = f32[64,128] reverse(x), dimensions={0,1}
        }"""
    assert of_text(text).steps == 1


@pytest.mark.parametrize(
    ("dump", "kernel", "words"),
    [
        (ATTENTION, "nothing", "no kernel and no pair before fusion matches 'nothing'"),
        (ATTENTION, "exp -> nothing", "no kernel and no pair before fusion matches"),
        (DUMPS / "h100" / "loop", "*", "computations, expected one"),
    ],
)
def test_what_cannot_be_sketched_is_said_in_one_line(dump: Path, kernel: str, words: str) -> None:
    with pytest.raises(UnusableInput) as refusal:
        written(dump, kernel)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_an_operation_without_an_expression_is_named() -> None:
    text = """
        ENTRY e {
          x = f32[8] parameter(0)
          ROOT r = f32[8] custom-call(x), custom_call_target="f"
        }"""
    with pytest.raises(UnusableInput, match="no sketch: r is 'custom-call'"):
        of_text(text)


def test_complex_numbers_have_no_kernel() -> None:
    with pytest.raises(UnusableInput, match="complex"):
        of_text("ENTRY e { x = c64[8] parameter(0)\n ROOT r = c64[8] negate(x) }")


def test_without_jax_the_sketch_says_that_it_was_not_checked(tmp_path: Path) -> None:
    text = written(CONCATENATE, "loop_add_fusion", "--python", "/bin/false")
    assert "Not checked: " in text and "def one_kernel(" in text
    compile(text, "kernel.py", "exec")


@pytest.mark.parametrize(
    ("dump", "offered"),
    [
        # Elementwise operations and reductions; what a call or a loop computes has no expression.
        (
            "tpu-v5e/softmax",
            {"constant.3 -> reduce_max.7", "reduce_max.7 -> sub.6", "reduce_sum.7 -> div.6"},
        ),
        ("tpu-v5e/attention", set()),
        ("h100/loop", set()),
    ],
)
def test_a_kernel_is_offered_for_pairs_that_can_be_written(dump: str, offered: set[str]) -> None:
    assert offered_pairs(DUMPS / dump) == offered


def test_modules_of_one_name_have_offers_of_their_own(tmp_path: Path) -> None:
    """JAX compiles a function once for each shape of its arguments."""
    for number, name in enumerate(("attention", "loop")):
        for file in (DUMPS / "h100" / name).glob("module_*"):
            shutil.copy(file, tmp_path / re.sub(r"^module_\d+", f"module_{number}", file.name))
    offered = {*offered_pairs(DUMPS / "h100/attention"), *offered_pairs(DUMPS / "h100/loop")}
    assert offered and offered_pairs(tmp_path) == offered


def offered_pairs(dump: Path) -> set[str]:
    words = ["explain", str(dump), "--all", "--top", "100"]
    ended = CliRunner().invoke(cli, words, env={"COLUMNS": "10000"})
    assert "nothing" in ended.stdout
    return {*re.findall(r"fusionscope draw .*'(.+ -> .+)' --kernel-sketch", ended.stdout)}


@pytest.mark.parametrize(
    ("dump", "pair"),
    [("tpu-v5e/attention", "select_n.2 -> custom-call"), ("h100/loop", "constant.* -> while.6")],
)
def test_what_is_not_offered_cannot_be_written(dump: str, pair: str) -> None:
    with pytest.raises(UnusableInput):
        written(DUMPS / dump, pair)


def test_a_reduction_of_several_values_is_shared_by_its_rows() -> None:
    drawn = of_text(
        """
        larger { a = f32[] parameter(0)
          i = s32[] parameter(1)
          b = f32[] parameter(2)
          j = s32[] parameter(3)
          is_first = pred[] compare(a, b), direction=GE
          value = f32[] select(is_first, a, b)
          place = s32[] select(is_first, i, j)
          ROOT both = (f32[], s32[]) tuple(value, place) }
        rows { x = f32[4096,64] parameter(0)
          n = s32[4096,64] iota(), iota_dimension=1
          low = f32[] constant(-inf)
          zero = s32[] constant(0)
          most = (f32[4096], s32[4096]) reduce(x, n, low, zero), dimensions={1}, to_apply=larger
          ROOT place = s32[4096] get-tuple-element(most), index=1 }
        ENTRY e { x = f32[4096,64] parameter(0)
          ROOT r = s32[4096] fusion(x), kind=kLoop, calls=rows }
        """
    )
    # At least 1,024 elements of the largest value for each: there are 64 times 4,096.
    assert drawn.steps == 256


def test_tiles_within_a_fusion_are_its_operands() -> None:
    """jaxlib 0.7 writes what Triton reads of an operand as a fusion of nothing."""
    dump = DUMPS.parents[1] / "tests" / "versions" / "dumps" / "h100-jaxlib-0.7" / "dense"
    module = open_dump(dump).modules[0]
    graph = MutableModule(module.read(module.last))
    take_apart(graph)
    opcodes = [instruction.opcode for instruction in graph.entry.post_order()]
    assert "dot" in opcodes and "fusion" not in opcodes
