"""Numbers and times of variants: what they are judged to be, and runs for real."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope import DumpedModule, UnusableInput, parse
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.rerun import runner
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.plans import Plan, Rest, make_plan, own_plan
from fusionscope.rerun.rerun import rerun
from fusionscope.rerun.running import (
    Measurement,
    Numbers,
    ResultDifference,
    Timing,
    measure,
    why_not_run,
    widen,
)
from fusionscope.rules.changes import Changes, read_changes

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
EPSILON = 2.0**-23


@pytest.mark.parametrize(("runs", "verdict"), [(1, Speed.UNCLEAR), (24, Speed.FASTER)])
def test_few_runs_have_no_verdict(runs, verdict):
    timing = Timing(
        baseline_ns=2e9,
        variant_ns=1e9,
        baseline_quartiles=(2e9, 2e9),
        variant_quartiles=(1e9, 1e9),
        ratio=Ratio(0.5, 0.5, 0.5),
        noise=Ratio(1.0, 1.0, 1.0),
        runs=runs,
    )
    assert timing.verdict is verdict


def one(**facts: object) -> ResultDifference:
    fields = {"dtype": "float32", "elements": 8, "is_equal": False, "epsilon": EPSILON} | facts
    return ResultDifference(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (one(is_equal=True), Numbers.EQUAL),
        (one(difference=3 * EPSILON), Numbers.ROUNDED),
        (one(difference=1e-3), Numbers.DIFFERENT),
        (one(difference=None), Numbers.DIFFERENT),  # a number against none
        # Both are as far from the truth as each other, the program is a rough one.
        (one(difference=2e-3, baseline_error=1e-3, variant_error=1e-3), Numbers.ROUNDED),
        (one(difference=2e-3, baseline_error=1e-7, variant_error=2e-3), Numbers.DIFFERENT),
        (one(dtype="int32", epsilon=None, difference=0.01), Numbers.DIFFERENT),
        # Sums of narrow numbers are made of wider ones.
        (one(dtype="bfloat16", epsilon=2.0**-7, difference=2.0**-6), Numbers.ROUNDED),
        (one(dtype="bfloat16", epsilon=2.0**-7, difference=0.5), Numbers.DIFFERENT),
        (one(dtype="float64", epsilon=2.0**-52, difference=1e-9), Numbers.DIFFERENT),
    ],
)
def test_what_a_result_is_judged_to_be(result: ResultDifference, verdict: Numbers) -> None:
    assert result.verdict is verdict


def test_the_worst_result_counts() -> None:
    equal, rounded = one(is_equal=True), one(difference=EPSILON)
    assert Measurement("", (equal, equal)).numbers is Numbers.EQUAL
    assert Measurement("", (rounded, equal)).numbers is Numbers.ROUNDED
    assert Measurement("", (rounded, one(difference=None))).numbers is Numbers.DIFFERENT
    assert Measurement("it died").numbers is None


def test_sixty_four_bits_where_that_is_the_same_program() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = BITS[4] parameter(0)\n  ROOT y = BITS[4] OP(x)\n}\n"
    plain = widen(parse(text.replace("BITS", "bf16").replace("OP", "tanh")))
    assert plain is not None
    assert "f64[4] tanh" in plain.replace("{0}", "")
    complex_ = widen(parse(text.replace("BITS", "c64").replace("OP", "negate")))
    assert complex_ is not None
    assert "c128[4]" in complex_
    assert widen(parse(text.replace("BITS", "s32").replace("OP", "bitcast-convert"))) is None


def test_a_dump_without_its_constants_is_not_run(tmp_path: Path) -> None:
    (module,) = open_dump(DUMPS / "cpu" / "softmax").modules
    assert why_not_run(module) == ""
    stage = next(s for s in module.stages if s.label == "before_optimizations")
    assert stage.text is not None
    for file in (DUMPS / "cpu" / "softmax").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    name = stage.text.path.name
    (tmp_path / name).unlink()
    (tmp_path / name.removesuffix(".gz")).write_text(
        "HloModule jit_program\n\nENTRY main {\n  ROOT c = f32[20] constant({...})\n}\n"
    )
    (lacking,) = open_dump(tmp_path).modules
    assert "--xla_dump_large_constants" in why_not_run(lacking)


@pytest.fixture(scope="module")
def concatenate() -> DumpedModule:
    (module,) = open_dump(DUMPS / "cpu" / "concatenate").modules
    return module


def injected(module: DumpedModule, plan: Plan) -> Injection:
    injection = inject(module, plan, python=PYTHON, limit_s=300)
    assert not injection.problem
    return injection


PYTHON = __import__("sys").executable


@with_jax
@pytest.mark.parametrize("name", ["concatenate", "loop", "softmax"])
def test_the_compilers_own_plan_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    (module,) = open_dump(DUMPS / "cpu" / name).modules
    variant = rerun(module, own_plan(module), tmp_path / "rerun")
    assert variant.holds
    assert variant.is_same
    (measured,) = measure(
        module, Injection(), [variant.injection], seconds=0, python=PYTHON, limit_s=300
    )
    assert measured.numbers is Numbers.EQUAL
    assert measured.timing is not None
    assert measured.timing.runs > 0
    assert measured.timing.is_same_program
    assert measured.timing.verdict is Speed.SAME


# Its loop carries constants, which one kernel reads twice.
DRAWING = """
import jax
from jax import lax
from jax import numpy as jnp


def carried(x, keys):
    def step(x, key):
        one, two = jax.random.split(key)
        x = x * jnp.exp(-jax.random.uniform(one, x.shape))
        x = x * jnp.exp(-jax.random.uniform(two, x.shape))
        return x, x.mean()

    return lax.scan(step, x, keys)


carried.example_args = jnp.ones((32, 34)), jnp.ones((5, 2), jnp.uint32)
"""


@with_jax
def test_a_loop_carries_what_it_leaves_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DRAWING)
    program = read_program(f"{tmp_path / 'program.py'}:carried")
    capture(program, read_target("cpu"), tmp_path / "dump")
    (module,) = open_dump(tmp_path / "dump").modules
    rerun_of_own_plan = rerun(module, own_plan(module), tmp_path / "rerun")
    assert rerun_of_own_plan.variant == rerun_of_own_plan.baseline
    assert rerun_of_own_plan.is_same


@with_jax
def test_plans_compute_the_same(concatenate: DumpedModule) -> None:
    options = read_changes((), (), ("* -> concatenate*", "concatenate* -> *"), ())
    kernels = Changes(kernels=(("tanh.1", "mul.3", "add.3", "concatenate.1"),))
    plans = [
        make_plan(concatenate, options),
        make_plan(concatenate, options, Rest.XLA),
        make_plan(concatenate, kernels, Rest.OFF),
        make_plan(concatenate, read_changes((), (), (), ("mul* -> *",)), Rest.XLA),
    ]
    measured = measure(
        concatenate,
        injected(concatenate, own_plan(concatenate)),
        [injected(concatenate, plan) for plan in plans],
        seconds=0,
        python=PYTHON,
        limit_s=300,
    )
    assert {item.numbers for item in measured} <= {Numbers.EQUAL, Numbers.ROUNDED}
    timings = [item.timing for item in measured]
    assert not any(timing is None or timing.is_same_program for timing in timings)


@with_jax
def test_what_is_wrong_is_told_and_spoils_nothing_else(concatenate: DumpedModule) -> None:
    local = injected(concatenate, own_plan(concatenate))
    assert local.module is not None
    wrong = parse(_doubled(local.module))
    died = replace(local, module=parse(_with_sort_inside(local.module)))
    measured = measure(
        concatenate,
        local,
        [replace(local, module=wrong), died, local],
        seconds=0,
        python=PYTHON,
        limit_s=300,
    )
    assert [item.numbers for item in measured] == [Numbers.DIFFERENT, None, Numbers.EQUAL]
    assert measured[1].problem
    assert "\n" not in measured[1].problem
    # Only what differs is compared with a run in 64 bits.
    errors = [[result.variant_error for result in measurement.results] for measurement in measured]
    assert any(item is not None and item > 0.1 for item in errors[0])
    assert not any(errors[2])


def _doubled(module: object) -> str:
    """With another operation where the exponential was."""
    from fusionscope.hlo import to_text

    text = to_text(module)  # type: ignore[arg-type]
    assert " exponential(" in text
    return text.replace(" exponential(", " sine(")


def _with_sort_inside(module: object) -> str:
    from fusionscope.hlo import to_text

    text = to_text(module)  # type: ignore[arg-type]
    less = "%less (a: f32[], b: f32[]) -> pred[] {\n  %a = f32[] parameter(0)\n  %b = f32[] "
    less += "parameter(1)\n  ROOT %c = pred[] compare(%a, %b), direction=LT\n}\n\n"
    head, _, remaining = text.partition("\n%")
    old = next(line for line in remaining.splitlines() if " exponential(" in line)
    operand = old.partition("exponential(")[2].partition(")")[0]
    new = old.replace(f"exponential({operand})", f"sort({operand})")
    new = new.partition(", metadata")[0] + ", dimensions={0}, to_apply=%less"
    return f"{head}\n{less}%{remaining.replace(old, new)}"


@with_jax
def test_results_of_other_types_or_shapes_are_not_compared() -> None:
    numpy = pytest.importorskip("numpy")
    ones = numpy.ones(4, "float32")
    assert runner._compare_alike([ones], [numpy.ones(4)]) == []
    assert runner._compare_alike([ones], [numpy.ones(5, "float32")]) == []
    assert runner._compare_alike([ones], []) == []
    actual = runner._compare_alike([ones, ones], [ones, numpy.float32([1, 1, 0.5, 1])])
    assert [facts["is_equal"] for facts in actual] == [True, False]
    assert [facts["difference"] for facts in actual] == [0.0, 0.5]


@with_jax
def test_inputs_of_a_file(concatenate: DumpedModule, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    local = injected(concatenate, own_plan(concatenate))
    stage = next(s for s in concatenate.stages if s.label == "before_optimizations")
    shapes = [parameter.shape.dimensions for parameter in concatenate.read(stage).entry.parameters]
    file = tmp_path / "inputs.npz"
    numpy.savez(file, *[numpy.full(shape, 0.5, "float32") for shape in shapes])
    options = {"seconds": 0.0, "python": PYTHON, "limit_s": 300.0}
    (measured,) = measure(concatenate, Injection(), [local], inputs=file, **options)
    assert measured.numbers is Numbers.EQUAL
    numpy.savez(file, numpy.zeros(3, "float32"))
    with pytest.raises(UnusableInput, match=r"holds float32\[3\], expected"):
        measure(concatenate, Injection(), [local], inputs=file, **options)
