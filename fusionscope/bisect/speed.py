"""Finds the fusions without which a program is faster, or compiles faster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from fusionscope.bisect.delta import minimize
from fusionscope.bisect.fused_plan import Kernel, Part
from fusionscope.bisect.result import By, Cost
from fusionscope.bisect.trials import Trials
from fusionscope.errors import UnusableInput
from fusionscope.rerun.workbench import Made

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
        """Return the parts without which the program is faster, and the times. There are none if it
        is not.
        """
        plan = self.trials.plan
        everything = list(plan.kernels)
        singles = self._ratios([[each] for each in everything])
        slow = [
            each
            for each, ratio in zip(everything, singles, strict=True)
            if ratio < _MATTERS[self.by]
        ]
        starts = [everything, slow] if slow else [everything]
        ratios = [self.ratio(_parts(each)) for each in starts]
        best = min(ratios)
        cost = Cost(self._whole_s, self._whole_s * best, self._whole_s * ratios[0])
        if best >= _MATTERS[self.by]:
            return [], cost
        enough = 1 - _ENOUGH * (1 - best)

        def kernels_are_enough(kernels: Sequence[Kernel]) -> bool:
            self.trials.progress(f"{self.trials.tried} tried: which of {len(kernels)} kernels")
            return self.ratio(_parts(kernels)) <= enough

        def parts_are_enough(parts: Sequence[Part]) -> bool:
            self.trials.progress(f"{self.trials.tried} tried: which of {len(parts)} pairs")
            return self.ratio(parts) <= enough

        kernels = minimize(starts[ratios.index(best)], kernels_are_enough)
        found = minimize(_parts(kernels), parts_are_enough)
        (again,) = self._measure([frozenset(found)])  # the least of many may have been chance
        cost = Cost(self._whole_s, self._whole_s * again, self._whole_s * ratios[0])
        return (found if again < _MATTERS[self.by] else []), cost

    def ratio(self, without: Collection[Part]) -> float:
        """Return the ratio without some parts; infinity if that cannot be compiled."""
        key = frozenset(without)
        if key not in self._known:
            self._known[key] = next(iter(self._measure([key])))
        return self._known[key]

    def _ratios(self, choices: Sequence[Sequence[Kernel]]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(choices), _AT_ONCE):
            some = [frozenset(_parts(each)) for each in choices[start : start + _AT_ONCE]]
            self.trials.progress(f"leaving out kernel {start + 1} of {len(choices)}")
            ratios = list(self._measure(some))
            self._known |= dict(zip(some, ratios, strict=True))
            found += ratios
        return found

    def _measure(self, choices: Sequence[frozenset[Part]]) -> Iterator[float]:
        trials, whole = self.trials, self._whole
        made = [trials.make([p for p in trials.plan.parts if p not in each]) for each in choices]
        trials.tried += len(made)
        trials.failed += sum(bool(each.problem) for each in made)
        good = [each for each in made if not each.problem]
        if self.by is By.COMPILE_TIME:
            ratios = self._compile_again(choices, made)
        else:
            times = trials.bench.race([whole.number, *(e.number for e in good)], _SECONDS)
            self._whole_s = times[0].run_ns / 1e9
            ratios = {e.number: t.ratio.value for e, t in zip(good, times[1:], strict=True)}
        trials.bench.drop([each.number for each in good])
        for each in made:
            yield float("inf") if each.problem else ratios[each.number]

    def _compile_again(
        self, choices: Sequence[frozenset[Part]], made: Sequence[Made]
    ) -> dict[int, float]:
        """Return the ratios of compilation times: of the shortest of several each."""
        trials = self.trials
        least = [self._whole.compile_s, *(each.compile_s for each in made)]
        for _ in range(_COMPILATIONS - 1):
            for number, without in enumerate([frozenset(), *choices]):
                if number and made[number - 1].problem:
                    continue
                again = trials.make([p for p in trials.plan.parts if p not in without])
                if not again.problem:
                    least[number] = min(least[number], again.compile_s)
                    trials.bench.drop([again.number])
        self._whole_s = least[0]
        return {each.number: s / least[0] for each, s in zip(made, least[1:], strict=True)}


def _parts(kernels: Sequence[Kernel]) -> list[Part]:
    return [part for kernel in kernels for part in kernel.parts]
