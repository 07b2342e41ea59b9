"""What `rerun` says about measured times."""

from __future__ import annotations

import pytest

from fusionscope.report.rerun import timing_words
from fusionscope.rerun.measuring import Ratio
from fusionscope.rerun.running import Timing


@pytest.mark.parametrize(
    ("ratio", "is_same_program", "words"),
    [
        (Ratio(1.003, 0.995, 1.008), True, "no difference beyond noise (the same kernels)"),
        (
            Ratio(0.874, 0.857, 0.876),
            True,
            "not due to fusion: the same kernels, whose instructions may be in another order",
        ),
        (Ratio(0.874, 0.857, 0.876), False, "faster"),
    ],
)
def test_equal_kernels_are_never_faster(ratio: Ratio, is_same_program: bool, words: str) -> None:
    timing = Timing(
        baseline_ns=25_900.0,
        variant_ns=25_900.0 * ratio.value,
        baseline_quartiles=(25_900.0, 26_000.0),
        variant_quartiles=(22_600.0, 22_700.0),
        ratio=ratio,
        noise=Ratio(1.0, 0.987, 1.013),
        runs=24,
        is_same_program=is_same_program,
    )
    assert timing_words(timing).partition("): ")[2] == words
