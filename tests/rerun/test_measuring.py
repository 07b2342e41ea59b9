"""Timing in turns: what counts as faster, on a machine that others keep busy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import cycle

import pytest

from fusionscope.rerun.measuring import (
    COPIES,
    Ratio,
    Speed,
    compare,
    judge,
    time_in_turns,
)

pytestmark = pytest.mark.skipif(find_spec("scipy") is None, reason="needs scipy, as jax does")
_BUSY = 0.3  # the share of runs that another process interrupts


def nothing() -> None:
    """Place no threads."""


class Machine:
    """Draws times of runs: 1 ms for the baseline. Copies of a program differ by ``chance``."""

    def __init__(self, seed: int, chance: float = 0.0) -> None:
        self._source = random.Random(seed)
        self._chance = chance

    def copies(self, ratio: float) -> list[float]:
        return [ratio * self._source.lognormvariate(0, self._chance) for _ in range(COPIES)]

    def run(self, ratio: float) -> float:
        waits = self._source.expovariate(1 / 3e6) if self._source.random() < _BUSY else 0.0
        return 1e6 * ratio * self._source.lognormvariate(0, 0.02) + waits

    def verdict(self, ratio: float, rounds: int) -> Speed:
        baseline, variant = (
            [[self.run(copy) for _ in range(rounds)] for copy in self.copies(item)]
            for item in (1.0, ratio)
        )
        comparison = compare(variant, baseline)
        return judge(comparison.ratio, comparison.noise)


@pytest.mark.parametrize("chance", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("rounds", [8, 50])
def test_equal_programs_are_equally_fast(chance: float, rounds: int) -> None:
    machine = Machine(0, chance)
    verdicts = Counter(machine.verdict(1.0, rounds) for _ in range(100))
    assert verdicts[Speed.SAME] >= 95


@pytest.mark.parametrize(
    ("ratio", "chance", "rounds", "verdict"),
    [
        (0.9, 0.0, 200, Speed.FASTER),
        (0.8, 0.01, 200, Speed.FASTER),
        (1.25, 0.01, 200, Speed.SLOWER),
        (21.0, 0.01, 8, Speed.SLOWER),
        (21.0, 0.05, 100, Speed.SLOWER),
    ],
)
def test_a_difference_is_found(ratio: float, chance: float, rounds: int, verdict: Speed) -> None:
    machine = Machine(1, chance)
    verdicts = Counter(machine.verdict(ratio, rounds) for _ in range(40))
    assert verdicts[verdict] >= 38


def test_many_variants_tell_how_large_the_noise_is() -> None:
    """With two copies each, as of programs that compile slowly."""
    machine = Machine(4)
    chance = random.Random(5)

    def timed(ratio: float) -> list[list[float]]:
        copies = [ratio * chance.lognormvariate(0, 0.05) for _ in range(2)]
        return [[machine.run(copy) for _ in range(30)] for copy in copies]

    verdicts: dict[float, Counter[Speed]] = {0.7: Counter(), 1.0: Counter()}
    alone = Counter[Speed]()
    for _ in range(30):
        programs = [timed(ratio) for ratio in (1.0, 0.7, 1.0, *[1.0] * 9)]
        for ratio, variant in zip(verdicts, programs[1:], strict=False):
            comparison = compare(variant, programs[0], programs)
            verdicts[ratio][judge(comparison.ratio, comparison.noise)] += 1
        comparison = compare(programs[1], programs[0])
        alone[judge(comparison.ratio, comparison.noise)] += 1
    assert verdicts[0.7][Speed.FASTER] >= 28
    assert verdicts[1.0][Speed.SAME] >= 28
    assert alone[Speed.FASTER] < 28


def test_the_interval_contains_the_true_ratio() -> None:
    source = random.Random(2)
    contained = 0
    for _ in range(200):
        first, second = (
            [[source.lognormvariate(0.0, 0.3) for _ in range(31)] for _ in range(COPIES)]
            for _ in range(2)
        )
        ratio = compare(first, second).ratio
        assert ratio.low <= ratio.value <= ratio.high
        contained += ratio.low <= 1.0 <= ratio.high
    assert contained >= 190


def test_chance_between_copies_is_noise() -> None:
    def copies(medians: Sequence[float]) -> list[list[float]]:
        return [[median, median * 1.001] * 20 for median in medians]

    def noise(first: Sequence[float], second: Sequence[float]) -> Ratio:
        return compare(copies(first), copies(second)).noise

    assert noise([1, 1, 1], [1, 1, 1]) == Ratio(1.0, 1.0, 1.0)
    apart = noise([1.0, 1.1, 0.9], [1, 1, 1])
    assert apart.low < 0.9
    assert apart.high > 1.1
    # Student's t with four degrees of freedom is 4.604 at 99 %.
    assert noise([1.0, 1.02], [1.0, 1.02, 1.0, 1.02]).high == pytest.approx(
        (1.02) ** (4.604 * (1.5 / 4 * (1 / 2 + 1 / 4)) ** 0.5), rel=0.002
    )


class Clockwork:
    """A program with given times in ms."""

    def __init__(self, *milliseconds: float) -> None:
        self.may_repeat = False
        self.runs = 0
        self._times = cycle(milliseconds)

    def time(self, repeats: int) -> int:
        self.runs += repeats
        return int(1e6 * next(self._times) * repeats)


def test_a_clear_difference_needs_few_rounds() -> None:
    programs = [[Clockwork(10)], [Clockwork(7)], [Clockwork(210)]]
    actual = time_in_turns(programs, 600, nothing)
    assert [judge(item.ratio, item.noise) for item in actual] == [
        Speed.SAME,
        Speed.FASTER,
        Speed.SLOWER,
    ]
    assert [item.ratio.value for item in actual] == pytest.approx([1, 0.7, 21])
    assert {item.runs for item in actual} == {8}


def test_a_strict_limit_is_kept() -> None:
    """One run to warm up and one to time are the least."""
    strict, patient = [[Clockwork(10)], [Clockwork(7)]], [[Clockwork(10)], [Clockwork(7)]]
    times = time_in_turns(strict, 0, nothing, is_strict=True)
    assert [program.runs for (program,) in strict] == [2, 2]
    assert [time.runs for time in times] == [1, 1]
    assert {turn.runs for turn in time_in_turns(patient, 0, nothing)} == {8}


def test_slower_ones_can_be_dropped() -> None:
    slow, fast, unclear = Clockwork(210), Clockwork(7), Clockwork(*range(6, 13))
    programs = [[Clockwork(10)], [slow], [fast], [unclear]]
    runs = [turn.runs for turn in time_in_turns(programs, 0.1, nothing, drops_slower=True)]
    assert runs[1] == 8
    assert runs[0] == runs[2] == runs[3] > 8


def test_programs_that_keep_their_inputs_run_several_times() -> None:
    short = Clockwork(0.01)
    short.may_repeat = True
    (actual,) = time_in_turns([[short]], 0, nothing)
    assert short.runs > 100 * actual.runs
    assert actual.run_ns == pytest.approx(10_000)
