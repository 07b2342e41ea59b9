"""Finds the fusions without which a program is faster, or compiles faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fusionscope.bisect.delta import minimize
from fusionscope.bisect.fused_plan import Kernel, Part
from fusionscope.bisect.result import By, Cost
from fusionscope.bisect.trials import Trials
from fusionscope.errors import UnusableInput
from fusionscope.rerun.workbench import Made

_MOST_TRIED = 100  # ways to divide kernels; of larger plans, only whole kernels are left out
_AT_ONCE = 6  # variants that are timed beside each other
_SECONDS = 2.0  # at most, for timing these
_COMPILATIONS = 3  # of each variant: other processes only add time
# Ratios of times that matter. Compilations are timed only a few times.
_MATTERS = {By.TIME: 0.97, By.COMPILE_TIME: 0.9}
_ENOUGH = 0.75  # of the time that the best variant saves


@dataclass(slots=True)
class Speeds:
    """The times of parts of a plan left unfused, as ratios to that of the whole plan."""

    trials: Trials
    by: By
    _whole: Made = field(init=False)
    _known: dict[frozenset[Part], float] = field(default_factory=dict)
    _whole_s: float = 0.0

    def __post_init__(self) -> None:
        self._whole = self.trials.make(self.trials.plan.parts)
        if self._whole.problem:
            raise UnusableInput(f"the plan of the dump cannot be run: {self._whole.problem}")

    def find(self) -> tuple[list[Part], Cost | None]:
        """Return the parts without which the program is faster, if there are any, with times."""
        plan, matters = self.trials.plan, _MATTERS[self.by]
        ways = {kernel: _ways_to_divide(kernel) for kernel in plan.kernels}
        if sum(map(len, ways.values())) > _MOST_TRIED:
            ways = {kernel: [frozenset(kernel.parts)] for kernel in plan.kernels}
        self._try([way for some in ways.values() for way in some])
        best = {kernel: min(some, key=self.ratio) for kernel, some in ways.items()}
        faster = [way for way in best.values() if self.ratio(way) < matters]
        everything = frozenset(plan.parts)
        starts = [
            [everything],
            *([faster] if faster else []),
            *([part_alone] for part_alone in faster),
        ]
        ratios = [self.ratio(frozenset().union(*start)) for start in starts]
        least = min(ratios)
        if least >= matters:
            whole_s = self._whole_s
            return [], Cost(whole_s, whole_s * least, whole_s * ratios[0])
        enough = 1 - _ENOUGH * (1 - least)

        def are_enough(ways: Sequence[frozenset[Part]]) -> bool:
            self.trials.progress(f"{self.trials.tried} tried: which of {len(ways)} parts")
            return self.ratio(frozenset().union(*ways)) <= enough

        start = starts[ratios.index(least)]
        if start == [everything]:
            start = [frozenset(kernel.parts) for kernel in plan.kernels]
        slow = frozenset().union(*minimize(start, are_enough))
        single = [frozenset([part]) for part in plan.parts if part in slow]
        slow_parts = [part for way in minimize(single, are_enough) for part in way]
        whole, without = self._confirm(frozenset(slow_parts))
        cost = Cost(min(whole), min(without), min(whole) * ratios[0])
        # A run is timed often enough that a slow copy is slow; a compilation only once each.
        slowest = max(without) if self.by is By.TIME else min(without) / matters
        return (slow_parts if slowest < min(whole) else []), cost

    def _confirm(self, without: frozenset[Part]) -> tuple[list[float], list[float]]:
        """Return the seconds of several compilations of the whole plan, and of the plan without
        some parts: the least of many measured times may have been chance, and so may a difference
        between two compilations.
        """
        trials = self.trials
        trials.progress("timing it again")
        remaining = [part for part in trials.plan.parts if part not in without]
        executables = [
            trials.make(parts) for parts in (trials.plan.parts, remaining) * _COMPILATIONS
        ]
        if any(executable.problem for executable in executables):
            return [0.0], [0.0]
        seconds = [executable.compile_s for executable in executables]
        numbers = [executable.number for executable in executables]
        if self.by is By.TIME:
            times = trials.bench.race(numbers, _SECONDS * _COMPILATIONS)
            seconds = [time.run_ns / 1e9 for time in times]
        trials.bench.drop(numbers)
        return seconds[::2], seconds[1::2]

    def ratio(self, without: frozenset[Part]) -> float:
        """Return the ratio without some parts; infinity if that cannot be compiled."""
        if without not in self._known:
            self._try([without])
        return self._known[without]

    def _try(self, choices: Sequence[frozenset[Part]]) -> None:
        for start in range(0, len(choices), _AT_ONCE):
            some = choices[start : start + _AT_ONCE]
            self.trials.progress(f"leaving out part {start + 1} of {len(choices)}")
            self._known |= dict(zip(some, self._measure(some), strict=True))

    def _measure(self, choices: Sequence[frozenset[Part]]) -> Iterator[float]:
        trials, whole = self.trials, self._whole
        executables = [
            trials.make([p for p in trials.plan.parts if p not in choice]) for choice in choices
        ]
        trials.tried += len(executables)
        trials.failed += sum(bool(executable.problem) for executable in executables)
        good = [executable for executable in executables if not executable.problem]
        if self.by is By.COMPILE_TIME:
            ratios = self._compile_again(choices, executables)
        else:
            times = trials.bench.race([whole.number, *(e.number for e in good)], _SECONDS)
            self._whole_s = times[0].run_ns / 1e9
            ratios = {e.number: t.ratio.value for e, t in zip(good, times[1:], strict=True)}
        trials.bench.drop([executable.number for executable in good])
        for executable in executables:
            yield float("inf") if executable.problem else ratios[executable.number]

    def _compile_again(
        self, choices: Sequence[frozenset[Part]], executables: Sequence[Made]
    ) -> dict[int, float]:
        """Return the ratios of compilation times: of the shortest of several each."""
        trials = self.trials
        least = [self._whole.compile_s, *(executable.compile_s for executable in executables)]
        for _ in range(_COMPILATIONS - 1):
            for number, without in enumerate([frozenset(), *choices]):
                if number and executables[number - 1].problem:
                    continue
                again = trials.make([p for p in trials.plan.parts if p not in without])
                if not again.problem:
                    least[number] = min(least[number], again.compile_s)
                    trials.bench.drop([again.number])
        self._whole_s = least[0]
        return {
            executable.number: s / least[0]
            for executable, s in zip(executables, least[1:], strict=True)
        }


def _ways_to_divide(kernel: Kernel) -> list[frozenset[Part]]:
    """Return what is left out to unfuse ``kernel``, or to divide it between two operations."""
    place = {operation.name: number for number, operation in enumerate(kernel.operations)}
    between = (
        frozenset(
            part
            for part in kernel.parts
            if part.producer and place[part.producer] < end <= place[part.consumer]
        )
        for end in range(1, len(kernel.operations))
    )
    return list(dict.fromkeys([frozenset(kernel.parts), *filter(None, between)]))
