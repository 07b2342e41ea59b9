"""Which changes go together, and what a design is without each of its changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.running import Measurement, Timing
from fusionscope.rules.changes import Changes
from fusionscope.tune.moves import Candidate
from fusionscope.tune.results import Design, beside_faster, may_join

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"


def kernel(*members: str) -> Candidate:
    return Candidate("one kernel", "one kernel of", " ".join(members), Changes(kernels=(members,)))


def test_an_operation_is_in_one_new_kernel() -> None:
    (module,), (second,) = (open_dump(CPU / item).modules for item in ("concatenate", "softmax"))
    without = Candidate("rule", "without", "cpu-concat", Changes(disabled=("cpu-concat",)))
    first, two, three, rule = (
        Design(module, parts=(item,))
        for item in (kernel("a", "b"), kernel("c", "d"), kernel("b", "c"), without)
    )
    assert may_join(first, two)
    assert not may_join(first, three)
    assert may_join(three, rule)
    assert not may_join(rule, rule)
    # Names of operations are those of one module, those of rules are not.
    assert not may_join(Design(second, parts=(without,)), first)
    assert may_join(Design(second, parts=(kernel("a"),)), rule)


def test_without_each_change() -> None:
    (module,) = open_dump(CPU / "concatenate").modules
    parts = kernel("a", "b"), kernel("c", "d")
    assert [item.parts for item in Design(module, parts=parts).without_each()] == [
        (parts[1],),
        (parts[0],),
    ]
    assert not Design(module, parts=parts[:1]).without_each()


def test_a_plan_is_compared_with_the_faster_of_two_baselines() -> None:
    plan = measured(90.0)
    beside_slower = beside_faster(measured(120.0), plan).timing
    assert beside_slower == plan.timing
    assert beside_slower is not None and beside_slower.verdict is Speed.FASTER
    beside = beside_faster(measured(80.0), plan).timing
    assert beside is not None and beside.verdict is Speed.SLOWER
    assert beside.baseline_ns == 80.0
    assert beside.ratio.value == pytest.approx(90.0 / 80.0)


def measured(ns: float) -> Measurement:
    """A program beside one of 100 ns."""
    ratio = Ratio(ns / 100.0, ns / 101.0, ns / 99.0)
    timing = Timing(
        baseline_ns=100.0,
        variant_ns=ns,
        baseline_quartiles=(100.0, 100.0),
        variant_quartiles=(ns, ns),
        ratio=ratio,
        noise=Ratio(1.0, 1.0, 1.0),
        runs=9,
    )
    return Measurement("", (), timing)
