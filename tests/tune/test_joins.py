"""Kernels that can become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.history.kernels import launches_of
from fusionscope.rerun.plans import make_plan, own_plan
from fusionscope.rules.changes import Changes
from fusionscope.tune.joins import find_joins

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


@pytest.mark.parametrize("dump", ["h100/concatenate", "cpu/elementwise"])
def test_joined_kernels_are_launched_once(dump: str) -> None:
    (module,) = open_dump(DUMPS / dump).modules
    local = own_plan(module)
    usual = len(launches_of(local.after, module.backend))
    actual = list(find_joins(local, module.backend))
    assert actual
    for join in actual:
        plan = make_plan(module, Changes(kernels=(join.members,)))
        count = int(join.what.split()[0])
        assert len(launches_of(plan.after, module.backend)) == usual - count + 1


def test_what_has_to_run_between_keeps_kernels_apart() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "softmax").modules
    assert not list(find_joins(own_plan(module), module.backend))
