"""Variants that are kept ready in one process."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope import DumpedModule, parse, to_text
from fusionscope.dump import open_dump
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import Plan, make_plan, own_plan
from fusionscope.rerun.running import Measurement, Numbers
from fusionscope.rerun.workbench import BASELINE, Made, Variant, Workbench
from fusionscope.rules.changes import Changes

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"
KERNEL = ("tanh.1", "mul.3", "add.3", "concatenate.1")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


@pytest.fixture(scope="module")
def module() -> DumpedModule:
    (actual,) = open_dump(CPU / "concatenate").modules
    return actual


@pytest.fixture(scope="module")
def bench(module: DumpedModule) -> Iterator[Workbench]:
    with Workbench(
        module, Injection(), inputs=None, seed=0, python=sys.executable, limit_s=300
    ) as actual:
        yield actual


def made(bench: Workbench, injection: Injection) -> Made:
    return bench.make(Variant(injection), limit_s=300)


def numbers(first: Made) -> Numbers | None:
    return Measurement(first.problem, first.results).numbers


def test_plans_are_injected_as_in_a_process_of_their_own(
    module: DumpedModule, bench: Workbench
) -> None:
    def both(plan: Plan) -> list[str]:
        options = {"python": sys.executable, "limit_s": 300.0}
        actual = (
            inject(module, plan, **options),  # type: ignore[arg-type]
            inject(module, plan, **options, receive=bench.receive),  # type: ignore[arg-type]
        )
        return [to_text(item.module) for item in actual if item.module is not None]

    local, fused = both(own_plan(module)), both(make_plan(module, Changes(kernels=(KERNEL,))))
    assert local[0] == local[1]
    assert fused[0] == fused[1] != local[0]


def test_what_ends_the_process_spoils_nothing_else(module: DumpedModule, bench: Workbench) -> None:
    plan = make_plan(module, Changes(kernels=(KERNEL,)))
    injection = inject(module, plan, python="", limit_s=0.0, receive=bench.receive)
    assert injection.module is not None
    good = made(bench, injection)
    assert numbers(good) is Numbers.EQUAL
    text = to_text(injection.module)
    wrong = made(bench, replace(injection, module=parse(text.replace(" tanh(", " sine("))))
    assert numbers(wrong) is Numbers.DIFFERENT
    sorting = text.replace("ROOT %", "ROOT %", 1).replace(" tanh(", " cholesky(")
    died = made(bench, replace(injection, module=parse(sorting)))
    assert died.problem
    assert "\n" not in died.problem
    times = bench.race([BASELINE, good.number], seconds=0.1)
    assert [time.runs > 0 for time in times] == [True, True]
    assert times[0].ratio.value == 1
    bench.drop([good.number, wrong.number])


def test_a_late_answer_is_a_problem_of_that_variant(module: DumpedModule, bench: Workbench) -> None:
    late = bench.make(Variant(Injection()), limit_s=0.001)
    assert "took over 0.001 s" in late.problem
    assert numbers(made(bench, Injection())) is Numbers.EQUAL
