"""Other programs in the place of a dumped one: their numbers, on a CPU if a GPU is absent."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fusionscope import parse
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.hlo import Module
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.programs import find_program
from fusionscope.rerun.running import Numbers, measure
from fusionscope.rerun.trial import Variant, try_variants

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
SUM = """
import jax.numpy as jnp

def program(rows):
    return jnp.sum(jnp.sin(rows) * rows)
"""


def program_of(formula: str, element_type: str = "f32") -> Module:
    """A program that reads an array and returns one number."""
    return parse(f"""HloModule jit_program

add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}}

ENTRY main {{
  given = {element_type}[64] parameter(0)
  rows = f32[64] convert(given)
  sines = f32[64] {formula}(rows)
  products = f32[64] multiply(sines, rows)
  zero = f32[] constant(0)
  ROOT total = f32[] reduce(products, zero), dimensions={{0}}, to_apply=add
}}
""")


@with_jax
def test_another_program_is_compared_with_that_of_the_dump(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(SUM)
    target = read_target("cpu")
    dump = capture(read_program(f"{file}:program", ("f32[64]",)), target, tmp_path / "dump")
    (module,) = open_dump(dump.directory).modules
    variants = [
        Variant("same", None, program=program_of("sine")),
        Variant("other", None, program=program_of("cosine")),
    ]
    trial = try_variants(module, variants, tmp_path / "out", baseline=None, seconds=0.1)
    same, different = trial.variants
    assert same.holds and same.measurement is not None
    assert same.measurement.numbers in (Numbers.EQUAL, Numbers.ROUNDED)
    assert same.measurement.timing is not None
    assert different.measurement is not None and not different.holds
    assert different.measurement.numbers is Numbers.DIFFERENT


@with_jax
@pytest.mark.parametrize("name", ["h100/softmax", "h100/reductions"])
def test_a_program_for_an_absent_gpu_is_compared_on_a_cpu(name: str) -> None:
    (module,) = open_dump(DUMPS / name).modules
    program = find_program(module)
    (measured,) = measure(
        module,
        Injection(),
        [Injection(program=program)],
        seconds=0,
        python=sys.executable,
        limit_s=100.0,
        is_strict=True,
        on_cpu=True,
    )
    assert not measured.problem and measured.results
    assert measured.numbers is Numbers.EQUAL


@with_jax
def test_arguments_of_other_types_are_converted(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(SUM)
    target = read_target("cpu")
    dump = capture(read_program(f"{file}:program", ("f32[64]",)), target, tmp_path / "dump")
    (module,) = open_dump(dump.directory).modules
    (measured,) = measure(
        module,
        Injection(),
        [Injection(program=program_of("sine", "f16"))],
        seconds=0,
        python=sys.executable,
        limit_s=100.0,
        is_strict=True,
    )
    (result,) = measured.results
    assert result.difference is not None and 0 < result.difference < 1e-2
