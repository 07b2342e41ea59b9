"""Times programs in turns, for as many rounds as their noise asks for.

``runner.py`` loads this file in a child process, under any Python that has jax: it imports nothing
of fusionscope, and numpy and scipy only in functions.

Other processes only add time, and on a busy machine they interrupt more than half of the runs. The
time of a program is therefore the lower decile of its runs. With twelve processes on two cores, the
ratio of two equal programs scattered by 2 to 6 % over 60 rounds, that of medians by 8 to 18 %.

The interval of a ratio is a bootstrap over rounds. It does not cover chance between compilations:
equal kernels at other addresses may differ by several percent for as long as the process lives.
Each program is therefore compiled several times, and the differences between these copies give the
``noise``: the ratio that two equal programs may have if they are timed like these. They come from
chance between compilations and from that between rounds. Both are much the same for all variants of
a program, so the copies of all that are timed together tell how large they are. Two copies of two
programs alone have two degrees of freedom: if copies differ by 5 %, a ratio of 0.7 is noise then in
half of the cases.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

COPIES = 3  # compilations of each program
_WARM_UP = 2  # runs
FEWEST = 8  # rounds that a verdict needs; every look has twice as many as the one before
_SHORTEST_NS = 1_000_000  # for several runs of one program that are timed together
_SHARE = 0.99  # of an interval: several looks at 99 % make about 95 %
_DECILE = 0.1
_RESAMPLED = 400
_NARROW = 0.05  # of an interval, as a share: further rounds would not make it more useful
_EQUAL = 0.01  # a difference that does not matter


class Speed(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference beyond noise"
    UNCLEAR = "too few runs to compare"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, and the ends of its 99 % confidence interval.

    value: ratio of the times
    low: lower end of an interval that contains the true ratio with 99 %
    high: upper end
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of one program: lower decile and quartiles in ns for a run, the ratio to the
    baseline, the ratio that equal programs may have, and the number of runs that were timed.
    """

    run_ns: float
    quartiles: tuple[float, float]
    ratio: Ratio
    noise: Ratio
    runs: int


class Program(Protocol):
    """One compilation of a program. ``may_repeat`` is whether it can run again on its inputs."""

    @property
    def may_repeat(self) -> bool: ...

    def time(self, repeats: int) -> int:
        """Return the ns of ``repeats`` runs."""


def judge(ratio: Ratio, noise: Ratio) -> Speed:
    """Return how a program compares with its baseline: it differs if the interval of its ratio
    excludes 1, and equal programs do not have that ratio.
    """
    if ratio.high < 1 and ratio.value < noise.low:
        return Speed.FASTER
    if ratio.low > 1 and ratio.value > noise.high:
        return Speed.SLOWER
    return Speed.SAME


def time_in_turns(
    programs: Sequence[Sequence[Program]],
    seconds: float,
    place_threads: Callable[[], object],
    *,
    drops_slower: bool = False,
    is_strict: bool = False,
) -> list[Times]:
    """Time ``programs``, copies of each, for at most ``seconds``, or until all ratios are clear.
    The first program is the baseline. There are at least ``FEWEST`` rounds, or one if the limit
    ``is_strict``.

    Each round has a random order, so that other load and the preceding run affect all of them
    alike, and begins with ``place_threads``. If ``drops_slower`` is set, programs that are slower
    than the baseline or the fastest one are not timed further.
    """
    end = time.monotonic() + seconds
    repeats = _repeats(programs, end if is_strict else None)
    seconds_taken: list[list[list[float]]] = [[[] for _ in copies] for copies in programs]
    racing = list(range(len(programs)))
    chance = random.Random(0)
    if not is_strict:
        end = time.monotonic() + seconds
    looks = _looks()
    look = next(looks)
    rounds = 0
    fewest = 1 if is_strict else FEWEST
    while rounds < fewest or time.monotonic() < end:
        order = [(number, copy) for number in racing for copy in range(len(programs[number]))]
        chance.shuffle(order)
        place_threads()
        for number, copy in order:
            seconds_taken[number][copy].append(programs[number][copy].time(repeats) / repeats)
        rounds += 1
        if rounds < look:
            continue
        look = next(looks)
        compared = {
            number: compare(seconds_taken[number], seconds_taken[0], seconds_taken)
            for number in racing[1:]
        }
        if drops_slower:
            best = min((times.ratio.high for times in compared.values()), default=1.0)
            racing = [0, *(n for n, times in compared.items() if times.ratio.low <= min(best, 1.0))]
        if all(_is_clear(compared[number]) for number in racing[1:]):
            break
    return [compare(times, seconds_taken[0], seconds_taken) for times in seconds_taken]


def _looks() -> Iterator[int]:
    look = FEWEST
    while True:
        yield look
        look *= 2


def _is_clear(times_of_variant: Times) -> bool:
    ratio = times_of_variant.ratio
    if ratio.low > 1 - _EQUAL and ratio.high < 1 + _EQUAL:
        return True
    return judge(ratio, times_of_variant.noise) is not Speed.SAME and ratio.high < ratio.low * (
        1 + _NARROW
    )


def _repeats(programs: Sequence[Sequence[Program]], end: float | None) -> int:
    """Warm up until ``end``, at least once, and return how many runs are timed together."""
    took: list[int] = []
    for _ in range(_WARM_UP):
        if took and end is not None and time.monotonic() > end:
            break
        took = [copy.time(1) for copies in programs for copy in copies]
    if not all(copy.may_repeat for copies in programs for copy in copies):
        return 1
    return max(1, _SHORTEST_NS // max(took[0], 1))


def compare(
    times: Sequence[Sequence[float]],
    baseline: Sequence[Sequence[float]],
    programs: Sequence[Sequence[Sequence[float]]] = (),
) -> Times:
    """Compare two programs, of which ``times`` and ``baseline`` have the ns of each copy and round.
    The baseline may have more rounds. ``programs`` are all that were timed together, by default
    these two.
    """
    import numpy

    runs = [run for copy in times for run in copy]
    low, _, high = statistics.quantiles(runs, n=4) if len(runs) > 1 else runs * 3
    beside = [copy[: len(times[0])] for copy in baseline]
    ratio, noise = _ratio_and_noise(times, beside, programs or (times, beside))
    return Times(
        run_ns=float(numpy.quantile(runs, _DECILE)),
        quartiles=(low, high),
        ratio=ratio,
        noise=noise,
        runs=len(runs),
    )


def _ratio_and_noise(
    times: Sequence[Sequence[float]],
    baseline: Sequence[Sequence[float]],
    programs: Sequence[Sequence[Sequence[float]]],
) -> tuple[Ratio, Ratio]:
    """Return the ratio, with a bootstrap interval, and the ratio that equal programs may have.

    The latter is the interval of Student's t for the difference of two means: those of the
    logarithms of the times of the copies. Their variance is that of the copies of all ``programs``.
    """
    import numpy
    from scipy.special import stdtrit

    rounds = len(times[0])
    drawn = numpy.random.default_rng(0).integers(0, rounds, (_RESAMPLED, rounds))
    drawn[0] = numpy.arange(rounds)  # what was measured comes first
    variant, reference = (
        numpy.log([numpy.quantile(numpy.asarray(copy)[drawn], _DECILE, axis=1) for copy in copies])
        for copies in (times, baseline)
    )
    ratios = numpy.exp(variant.mean(axis=0) - reference.mean(axis=0))
    low, high = numpy.quantile(ratios, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    ratio = Ratio(float(ratios[0]), float(min(low, ratios[0])), float(max(high, ratios[0])))
    freedom = sum(len(copies) - 1 for copies in programs)
    if not freedom:
        return ratio, Ratio(1.0, 1.0, 1.0)
    deciles = [numpy.log([numpy.quantile(copy, _DECILE) for copy in copies]) for copies in programs]
    squares = sum(((decile - decile.mean()) ** 2).sum() for decile in deciles)
    spread = (squares / freedom * (1 / len(variant) + 1 / len(reference))) ** 0.5
    reach = float(stdtrit(freedom, (1 + _SHARE) / 2)) * spread
    return ratio, Ratio(1.0, float(numpy.exp(-reach)), float(numpy.exp(reach)))
