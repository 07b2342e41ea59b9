"""The search for plans by the compiler's cost model."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.facts.times import estimate_final
from fusionscope.rerun.plans import make_plan
from fusionscope.tune.modelled import ModelSearch

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)


@with_cuda
def test_a_change_that_the_estimate_does_without_is_left_out() -> None:
    (module,) = open_dump(DUMPS / "h100/reductions").modules
    search = ModelSearch(module, 30)
    singles = {str(single.design): single for single in search.try_singles()}
    # The rule refuses only this pair, so either change does what both do.
    first = singles["without pf-negative"]
    second = singles["allow add.3.0 -> reduce_sum.23.0"]
    both = replace(first.design, parts=(*first.design.parts, *second.design.parts))
    ranked = [replace(first, design=both)]
    best = search.compile_best(ranked, python=sys.executable, limit_s=300)
    assert best is not None
    assert best.words in (str(first.design), str(second.design))
    assert best.estimates_us[1] / best.estimates_us[0] == pytest.approx(first.ratio, rel=1e-6)
    assert best.ablations == ()


def test_ratios_are_those_of_the_final_module() -> None:
    """It has copies that are not there after fusion, and that no plan removes."""
    (module,) = open_dump(DUMPS / "h100/loop").modules
    best = ModelSearch(module, 30).try_singles()[0]
    predicted, final = make_plan(module, best.design.changes).predicted, estimate_final(module)
    assert predicted is not None and predicted.time_us is not None and final is not None
    assert best.ratio == pytest.approx(predicted.time_us / final.microseconds)
