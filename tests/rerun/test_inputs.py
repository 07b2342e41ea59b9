"""Drawn inputs suit the program, and recorded ones are found again."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fusionscope import UnusableInput, parse
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.rerun.inputs import Domain, find_domains
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.programs import recorded_inputs
from fusionscope.rerun.running import Numbers
from fusionscope.rerun.trial import Variant, try_variants

with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")

POSITIVE, UNIT, ANY = Domain(is_positive=True), Domain(is_unit=True), Domain()


def domains(*lines: str, before: str = "") -> list[Domain]:
    body = "".join(f"  {line}\n" for line in lines)
    return find_domains(parse(f"HloModule m\n\n{before}ENTRY e {{\n{body}}}\n"))


ONE = ("c = f32[] constant(1)", "b = f32[8] broadcast(c), dimensions={}")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["y = f32[8] reshape(x)", "ROOT z = f32[8] log(y)"], POSITIVE),
        (["ROOT z = f32[8] divide(x, x)"], POSITIVE),
        ([*ONE, "y = f32[8] subtract(b, x)", "ROOT z = f32[8] log(y)"], UNIT),
        (["y = f32[8] negate(x)", "ROOT z = f32[8] log-plus-one(y)"], UNIT),
        (["y = f32[8] multiply(x, x)", "ROOT z = f32[8] sqrt(y)"], ANY),
        (["y = f32[8] exponential(x)", "ROOT z = f32[8] log(y)"], ANY),
        (["y = f32[8] tanh(x)", "w = f32[8] multiply(x, y)", "ROOT z = f32[8] sqrt(w)"], POSITIVE),
        (["c = f32[8] constant({...})", "ROOT z = f32[8] power(x, c)"], POSITIVE),
        ([*ONE, "ROOT z = f32[8] power(x, b)"], ANY),
    ],
)
def test_what_a_program_expects_of_an_argument(lines: list[str], expected: Domain) -> None:
    assert domains("x = f32[8] parameter(0)", *lines) == [expected]


def test_indices() -> None:
    assert domains(
        "x = f32[40,8] parameter(0)",
        "i = s32[] parameter(1)",
        "j = s32[3,1] parameter(2)",
        "k = s32[5] parameter(3)",
        "zero = s32[] constant(0)",
        "a = f32[10,8] dynamic-slice(x, i, zero), dynamic_slice_sizes={10,8}",
        "b = f32[3,8] gather(x, j), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}",
        "n = s32[5,17] iota(), iota_dimension=1",
        "w = s32[5,17] broadcast(k), dimensions={0}",
        "c = pred[5,17] compare(w, n), direction=EQ",
        "ROOT r = (f32[10,8], f32[3,8], pred[5,17]) tuple(a, b, c)",
    ) == [ANY, Domain(below=31), Domain(below=40), Domain(below=17)]


def test_arguments_are_followed_into_loops_and_calls() -> None:
    inner = """root {
  p = f32[8] parameter(0)
  ROOT q = f32[8] sqrt(p)
}

body {
  s = (f32[8], f32[8]) parameter(0)
  a = f32[8] get-tuple-element(s), index=0
  b = f32[8] get-tuple-element(s), index=1
  c = f32[8] call(b), to_apply=root
  ROOT t = (f32[8], f32[8]) tuple(a, c)
}

condition {
  s = (f32[8], f32[8]) parameter(0)
  ROOT c = pred[] constant(false)
}

"""
    assert domains(
        "x = f32[8] parameter(0)",
        "y = f32[8] parameter(1)",
        "t = (f32[8], f32[8]) tuple(x, y)",
        "w = (f32[8], f32[8]) while(t), condition=condition, body=body",
        "v = f32[8] get-tuple-element(w), index=0",
        "ROOT r = f32[8] call(v), to_apply=root",
        before=inner,
    ) == [POSITIVE, POSITIVE]


MODEL = """
import jax
import numpy as np
from jax import numpy as jnp


def step(weights, unused, key, table, i):
    a, b = weights["a"], weights["b"]
    solved = jnp.linalg.solve(jnp.linalg.cholesky(b), a)
    return jnp.log(a) * solved[:, :1], jax.random.normal(key, a.shape) + table[i].astype("float32")


matrix = np.eye(64) * 4 + 0.01
example_args = (
    {"a": np.full((64, 64), 2.0), "b": matrix},
    np.ones(3),
    jax.random.key(1),
    jnp.arange(20, dtype=jnp.bfloat16),
    np.arange(64) % 20,
)
"""


@with_jax
def test_inputs_are_recorded_with_a_dump(tmp_path: Path) -> None:
    import numpy

    (tmp_path / "model.py").write_text(MODEL)
    program, target = read_program(f"{tmp_path / 'model.py'}:step"), read_target("cpu")
    for name, records in (("recorded", True), ("plain", False)):
        capture(program, target, tmp_path / name, records_inputs=records)
    (module,), (plain,) = (open_dump(tmp_path / name).modules for name in ("recorded", "plain"))
    assert recorded_inputs(plain) is None
    file = recorded_inputs(module)
    assert file is not None
    with numpy.load(file) as stored:
        assert [stored[name].shape for name in stored] == [(64, 64), (64, 64), (2,), (20,), (64,)]
    variant = Variant("replay", own_plan(module))
    trial = try_variants(module, [variant], tmp_path / "rerun", baseline=None, seconds=0)
    assert trial.variants[0].measurement is not None
    assert trial.variants[0].measurement.numbers is Numbers.EQUAL


@with_jax
def test_shapes_are_no_inputs(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("example_args =", "other ="))
    program = read_program(f"{tmp_path / 'model.py'}:jnp.tanh", ["f32[8]"])
    with pytest.raises(UnusableInput, match="has a shape and no values"):
        capture(program, read_target("cpu"), tmp_path / "dump", records_inputs=True)
    (tmp_path / "program.hlo").write_text("HloModule m\n")
    hlo = read_program(str(tmp_path / "program.hlo"))
    with pytest.raises(UnusableInput, match="has no inputs to record"):
        capture(hlo, read_target("cpu"), tmp_path / "hlo", records_inputs=True)
