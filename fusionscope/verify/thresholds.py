"""Finds the thresholds with which the rules of a pass agree with dumps, where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.rules.changes import Changes
from fusionscope.verify.rules_used import replay_one
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs

_DOUBLINGS = 8  # how far from the known value others are tried
_SMALL = 8  # up to here, every value is


@dataclass(frozen=True, slots=True)
class FittingThreshold:
    """With ``rule.name`` from ``least`` to ``most``, the replay agrees with all programs.

    rule: id of the rule
    name: name of the threshold
    known: its value in the rules
    least: the least value that fits; null if none was found that is too small
    most: the largest; null if none was found that is too large
    """

    rule: str
    name: str
    known: int
    least: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class _Interval:
    least: int | None
    most: int | None

    def __and__(self, second: _Interval) -> _Interval:
        least = [bound for bound in (self.least, second.least) if bound is not None]
        most = [bound for bound in (self.most, second.most) if bound is not None]
        return _Interval(max(least, default=None), min(most, default=None))

    @property
    def is_empty(self) -> bool:
        return self.least is not None and self.most is not None and self.least > self.most


def agrees(module: DumpedModule, compiler: Compiler, pass_name: str) -> bool:
    """Return whether each run of the pass has the compiler's kernels in the replay of ``compiler``.
    Raises ``UnusableInput`` if none can be replayed.
    """
    runs = [run for run in find_runs(module) if run.pass_name == pass_name]
    if not runs:
        raise UnusableInput(f"{module.name}: {pass_name} does not run in it")
    context = read_context(module)
    return all(replay_one(module, run, context, compiler)[1] for run in runs)


def fitting_thresholds(
    programs: Sequence[DumpedModule], compiler: Compiler, pass_name: str
) -> Iterator[FittingThreshold]:
    """Yield each threshold of the rules of a pass that, changed alone, makes them agree with all
    ``programs``, on one of which they differ: it is quickest if those come first.
    """
    for rule in compiler.find(pass_name).book:
        for name, default in rule.thresholds.items():
            interval = _Interval(None, None)
            for program in programs:
                program_interval = _fitting(
                    default, _agreement(program, compiler, pass_name, rule.id, name)
                )
                if program_interval is None or (interval := interval & program_interval).is_empty:
                    break
            else:
                yield FittingThreshold(rule.id, name, default, interval.least, interval.most)


def _agreement(
    program: DumpedModule, compiler: Compiler, pass_name: str, rule: str, name: str
) -> Callable[[int], bool]:
    """Return a function of the threshold's value: whether the replay agrees with ``program``."""
    answers: dict[int, bool] = {}

    def agrees_with(value: int) -> bool:
        if value not in answers:
            changed = Changes(thresholds=((rule, name, value),)).apply(compiler)
            try:
                answers[value] = agrees(program, changed, pass_name)
            except UnusableInput:
                answers[value] = False
        return answers[value]

    return agrees_with


def _fitting(default: int, agrees_with: Callable[[int], bool]) -> _Interval | None:
    """Return the values nearest to ``default`` for which ``agrees_with`` holds, if any."""
    values = sorted(
        {*range(_SMALL + 1), default}
        | {default * 2**power for power in range(_DOUBLINGS + 1)}
        | {default // 2**power for power in range(_DOUBLINGS + 1)}
    )
    fitting = [value for value in values if agrees_with(value)]
    if not fitting:
        return None
    place = values.index(
        min(fitting, key=lambda candidate: abs(log((candidate + 1) / (default + 1))))
    )
    first = last = place
    while first and agrees_with(values[first - 1]):
        first -= 1
    while last + 1 < len(values) and agrees_with(values[last + 1]):
        last += 1
    least = _bound(values[first], values[first - 1], agrees_with) if first else None
    is_last = last + 1 == len(values)
    most = None if is_last else _bound(values[last], values[last + 1], agrees_with)
    return _Interval(least, most)


def _bound(inside: int, outside: int, agrees_with: Callable[[int], bool]) -> int:
    """Return the last value from ``inside`` towards ``outside`` for which ``agrees_with`` holds."""
    while abs(inside - outside) > 1:
        middle = (inside + outside) // 2
        if agrees_with(middle):
            inside = middle
        else:
            outside = middle
    return inside
