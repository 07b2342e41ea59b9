"""Tests which arguments `explain` suggests to donate, by compiling programs that donate them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.explain import explain
from fusionscope.findings.memory.donations import arguments_of
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.hlo import parse

with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
with_cuda = pytest.mark.skipif(
    find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)

SIZE = 512 * 512 * 4
PROGRAM = """
import jax
from jax import lax
from jax import numpy as jnp

example_args = (jnp.ones((512, 512)),)


def elementwise(x):
    return x * 2 + 1


def flipped(x):
    return x[::-1] * 2


def read_later(x):
    y = jnp.sin(x) @ x
    return y, (x * y).sum()


def loop(x):
    return lax.fori_loop(0, 10, lambda i, c: jnp.sin(c) @ c * 0.1, x)


elementwise_donated = jax.jit(elementwise, donate_argnums=0)
flipped_donated = jax.jit(flipped, donate_argnums=0)
read_later_donated = jax.jit(read_later, donate_argnums=0)
loop_donated = jax.jit(loop, donate_argnums=0)
"""


def memory(name: str, directory: Path, device: str) -> MemoryFacts:
    (directory / "model.py").write_text(PROGRAM)
    program = read_program(f"{directory / 'model.py'}:{name}")
    actual = capture(program, read_target(device), directory / name)
    (module,) = explain(open_dump(actual.directory)).modules
    memory = module.find(MemoryFacts)
    assert memory is not None
    return memory


@pytest.mark.slow
@with_jax
@pytest.mark.parametrize("device", ["cpu", pytest.param("h100", marks=with_cuda)])
@pytest.mark.parametrize(
    ("name", "is_free"),
    [("elementwise", True), ("loop", True), ("flipped", False), ("read_later", False)],
)
def test_donating_saves_the_bytes_of_an_output_if_nothing_reads_the_argument_then(
    name: str, is_free: bool, device: str, tmp_path: Path
) -> None:
    saved = memory(name, tmp_path, device)
    (donation,) = saved.donations
    assert (donation.parameter, donation.argument, donation.bytes) == ("x", 0, SIZE)
    assert (donation.read_by is None) is is_free
    donated = memory(f"{name}_donated", tmp_path, device)
    assert donated.donations == ()
    assert saved.total_bytes - donated.total_bytes == (SIZE if is_free else 0)
    assert donated.donated == SIZE
    if is_free:
        assert donated.peak_bytes == saved.donated_peak != saved.peak_bytes


PARTS = """
HloModule jit_parts, entry_computation_layout={(f32[4],f32[8],f32[4],f32[8])->(f32[4],f32[8])}

ENTRY main {
  a = f32[4] parameter(0), metadata={op_name="params['w']"}
  b = f32[8] parameter(1), metadata={op_name="params['b']"}
  c = f32[4] parameter(2), metadata={op_name="step"}
  d = f32[8] parameter(3), metadata={op_name="args[3]['x']"}
  ROOT result = (f32[4], f32[8]) tuple(a, b)
}
"""


def test_the_parts_of_an_argument_have_its_number() -> None:
    assert arguments_of(parse(PARTS)) == {0: 0, 1: 0, 2: 1, 3: 2}
    unnamed = re.sub(", metadata=.*", "", PARTS)
    assert arguments_of(parse(unnamed)) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert arguments_of(parse(PARTS.replace("jit_", "a_inference_"))) == {}  # of TensorFlow
