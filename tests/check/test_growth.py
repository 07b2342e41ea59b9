"""Budgets and exceptions, on records whose figures are set here."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fusionscope import Selection, UnusableInput
from fusionscope.check.allowances import ALLOWANCES, Allowance
from fusionscope.check.as_before import Origin, Tolerance
from fusionscope.check.baseline import Baseline, record_all
from fusionscope.check.checking import Checked, check
from fusionscope.check.expectations import EXPECTATIONS
from fusionscope.check.subject import Cell
from fusionscope.check.where import Where
from fusionscope.dump import open_dump
from fusionscope.explain import explain as explain_dump

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
TODAY = date(2026, 3, 1)
LAX = Tolerance(share=10.0, allow_better=True)  # of the baseline itself, which is not the matter


@cache
def cell(dump: str) -> Cell:
    return Cell(explain_dump(open_dump(DUMPS / dump), Selection(all_modules=True)))


def checked(
    limits: dict[str, Any], allowances: list[Allowance] | None = None, **before: Any
) -> Checked:
    """Check the growth of an attention, which has 3 launches, since it had these figures."""
    now = cell("h100/attention")
    ((key, record),) = record_all([now])
    baseline = Baseline(((key, replace(record, **before)),), LAX)
    expectations = [EXPECTATIONS["max_growth"]({name: limit}) for name, limit in limits.items()]
    return check([now], expectations, baseline, allowances=allowances or [], today=TODAY)


@pytest.mark.parametrize(
    ("limit", "before", "is_met"),
    [
        ("0%", 100, True),
        ("0%", 99, False),
        ("25%", 80, True),
        ("24.9%", 80, False),
        ("+25 %", 80, True),
        (20, 80, True),
        (19, 80, False),
        ("20 B", 80, True),
        ("0%", 0, False),
        ("0%", 101, True),
    ],
)
def test_a_figure_that_is_100_now(limit: Any, before: int, is_met: bool) -> None:
    now = cell("h100/softmax")
    (facts,) = now.explanation.modules
    summary = structs.replace(facts.summary, bytes_moved=100)
    now = Cell(replace(now.explanation, modules=(replace(facts, summary=summary),)))
    ((key, record),) = record_all([now])
    baseline = Baseline(((key, replace(record, bytes_moved=before)),), LAX)
    assert not EXPECTATIONS["max_growth"].expected({"bytes": limit})
    actual = check([now], [EXPECTATIONS["max_growth"]({"bytes": limit})], baseline)
    assert actual.outcomes[0].is_met == is_met


@pytest.mark.parametrize(
    "value",
    [{}, {"byte": "1%"}, {"bytes": "1"[:0]}, {"bytes": -1}, {"time": 3}, {"launches": "1 MB"}, 7,
     {"launches": True}, {"bytes": "-1%"}],
)  # fmt: skip
def test_growth_that_cannot_be(value: Any) -> None:
    assert EXPECTATIONS["max_growth"].expected(value)


def test_an_unknown_figure_is_not_met() -> None:
    assert not checked({"spills": "0%"}).is_met
    assert not checked({"time": "0%"}, time_us=None).is_met  # a baseline without it
    assert checked({"time": "0%"}).is_met


def test_headroom_is_by_how_much_the_time_is_above_the_bound() -> None:
    summary = cell("h100/attention").explanation.modules[0].summary
    assert summary.time is not None and summary.at_best_us is not None
    headroom = summary.time.microseconds - summary.at_best_us
    assert checked({"headroom": "10%"}, headroom_us=headroom / 1.09).is_met
    away = checked({"headroom": "10%"}, headroom_us=headroom / 1.11)
    assert [str(violation.growth) for violation in away.violations] != []
    assert not checked({"headroom": "10%"}, headroom_us=None).is_met


def test_a_bound_that_falls_is_not_for_the_worse() -> None:
    now = cell("h100/attention")
    ((key, record),) = record_all([now])
    before = Baseline(((key, replace(record, headroom_us=0.1)),), Tolerance(is_strict=True))
    assert check([now], [], before).is_met


def test_growth_of_nothing_is_a_mistake() -> None:
    with pytest.raises(UnusableInput, match="--against REF"):
        check([cell("h100/softmax")], [EXPECTATIONS["max_growth"]({"bytes": "1%"})])


def allowed(value: Any, until: date, key: str = "growth", **where: str) -> Allowance:
    assert not ALLOWANCES[key].expected(value)
    return ALLOWANCES[key](value=value, where=Where(**where), until=until, why="until it is fixed")


def test_an_exception_holds_until_its_day() -> None:
    few = {"launches": "0%"}
    assert not checked(few, launches=2).is_met
    on_the_day = checked(few, [allowed({"launches": "200%"}, TODAY)], launches=2)
    assert on_the_day.is_met
    ((violation, allowance),) = on_the_day.outcomes[0].allowed
    assert (violation.growth.after, allowance.why) == (3, "until it is fixed")  # type: ignore[union-attr]
    day_after = checked(few, [allowed({"launches": "200%"}, date(2026, 2, 28))], launches=2)
    assert "this was allowed until 2026-02-28" in day_after.violations[0].what


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"launches": "49%"}, {}),  # it is one half more
        ({"bytes": "900%"}, {}),
        ({"launches": "200%"}, {"module": "jit_other"}),
        ({"launches": "200%"}, {"device": "cpu"}),
        ({"launches": "200%"}, {"source": "attention.py"}),  # a figure is of the whole module
    ],
)
def test_an_exception_that_covers_nothing_is_named(value: Any, where: dict[str, str]) -> None:
    actual = checked({"launches": "0%"}, [allowed(value, TODAY, **where)], launches=2)
    assert not actual.is_met
    assert "nothing needs the exception growth = " in actual.problems[-1]


def test_a_pair_may_be_lost_for_a_while() -> None:
    worse, good = (
        cell("h100-without-triton-softmax/softmax"),
        cell("h100/softmax"),
    )
    baseline = Baseline(record_all([good]), LAX)
    lost = [
        violation
        for violation in check([worse], [], baseline).violations
        if violation.reason is not None
    ]
    assert {item.reason for item in lost} == {"pf-two-reduces"}
    for where in ({}, {"source": "softmax.py:9"}, {"source": "softmax.py:program"}):
        exceptions = [allowed("reduce -> *", TODAY, "pair", **where)]
        actual = check([worse], [], baseline, allowances=exceptions, today=TODAY)
        assert not any(violation.reason for violation in actual.violations)
        assert actual.violations  # others are duplicated now
    exceptions = [allowed("* -> *", TODAY, "pair")]
    assert check([worse], [], baseline, allowances=exceptions, today=TODAY).is_met
    exceptions = [allowed("dot -> *", TODAY, "pair")]
    assert not check([worse], [], baseline, allowances=exceptions, today=TODAY).is_met


def test_strict_counts_whatever_is_new() -> None:
    """`h100/attention` has three kernels; before, the last of them did not exist."""
    now = cell("h100/attention")
    ((key, record),) = record_all([now])
    (gone, *remaining) = record.kernels
    fewer = replace(
        record,
        kernels={name: record.kernels[name] for name in remaining},
        pairs=dict(list(record.pairs.items())[1:]),
        launches=record.launches - record.kernels[gone],
    )
    assert check([now], [], Baseline(((key, fewer),))).is_met
    actual = check([now], [], Baseline(((key, fewer),), Tolerance(is_strict=True)))
    words = [violation.what for violation in actual.violations]
    assert any(word.startswith("is a new kernel") and word.endswith(gone) for word in words)
    assert f"{record.launches} launches, was {fewer.launches}" in words
    assert check([now], [], Baseline(((key, record),), Tolerance(is_strict=True))).is_met


def test_a_module_that_only_one_side_has_is_no_violation_of_a_base() -> None:
    base = Origin("main", is_base=True)
    softmax, attention = cell("h100/softmax"), cell("h100/attention")
    actual = check([softmax], [], Baseline(record_all([attention]), LAX, base))
    assert actual.is_met
    notes = [note for outcome in actual.outcomes for note in outcome.notes]
    assert any(note.startswith("only main has this module") for note in notes)
    assert any(note.startswith("new: main has no such module") for note in notes)
