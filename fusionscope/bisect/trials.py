"""Compiles and runs parts of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from fusionscope.bisect.fused_plan import FusedPlan, Part
from fusionscope.bisect.reference import Reference
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module
from fusionscope.progress import Progress
from fusionscope.rerun.injection import Injection, Receiver, inject
from fusionscope.rerun.workbench import Made, Variant, Workbench

# Changes a module that is injected, such as a fault that is planted.
Alter = Callable[[Module], Module]

FIRST_RUNS = 5  # of the whole plan, which show whether it is wrong in every run
_MISSED = 0.01  # the chance to overlook a fault that does not show in every run


def prepare(
    module: DumpedModule, plan: FusedPlan, parts: Collection[Part], receive: Receiver, alter: Alter
) -> Injection:
    """Return what fuses only ``parts``, or why it cannot."""
    try:
        return prepare_module(module, plan, plan.fuse(parts).module, receive, alter)
    except UnusableInput as error:
        return Injection(problem=str(error))


def prepare_module(
    module: DumpedModule, plan: FusedPlan, module_wanted: Module, receive: Receiver, alter: Alter
) -> Injection:
    """Return what injects ``module_wanted`` in the place of ``plan``, or why it cannot."""
    altered = replace(plan.plan, after=module_wanted)
    injection = inject(module, altered, python="", limit_s=0.0, receive=receive)
    if injection.module is None:
        return injection
    return replace(injection, module=alter(injection.module))


@dataclass(slots=True)
class Trials:
    """Tries parts of ``plan`` on ``bench``, in at most ``limit_s`` seconds each. ``tried`` counts
    them, ``failed`` those that were refused, crashed or took too long.

    ``crashes`` is whether the whole plan crashes; then only that counts as wrong. ``shows_in`` is
    in how many of the ``FIRST_RUNS`` of the whole plan it is wrong.
    """

    module: DumpedModule
    plan: FusedPlan
    bench: Workbench
    reference: Reference
    alter: Alter
    limit_s: float
    progress: Progress
    tried: int = 0
    failed: int = 0
    crashes: bool = False
    shows_in: int = FIRST_RUNS
    _known: dict[frozenset[Part], bool] = field(default_factory=dict)

    def make(self, parts: Collection[Part]) -> Made:
        """Compile the program with ``parts`` fused, and run it once."""
        injection = prepare(self.module, self.plan, parts, self.bench.receive, self.alter)
        if injection.problem:
            return Made(-1, problem=injection.problem)
        return self.bench.make(Variant(injection), self.limit_s)

    def try_all(self) -> Made:
        """Try the whole plan, several times. Return its first wrong run, else its last."""
        executable = self.make(self.plan.parts)
        if executable.problem:
            self.crashes = executable.number >= 0
            return executable
        runs = [
            executable,
            *(self.bench.repeat(executable.number, self.limit_s) for _ in range(FIRST_RUNS - 1)),
        ]
        wrong = [run for run in runs if not run.problem and self.reference.is_wrong(run)]
        self.shows_in = len(wrong)
        self.bench.drop([executable.number])
        return wrong[0] if wrong else executable

    def is_wrong(self, parts: Sequence[Part]) -> bool:
        """Return whether the results are wrong if only ``parts`` are fused."""
        key = frozenset(parts)
        if key not in self._known:
            self.tried += 1
            self._known[key] = self._try(key)
        return self._known[key]

    def _try(self, parts: Collection[Part]) -> bool:
        executable = self.make(parts)
        if executable.problem:
            self.failed += 1
            return self.crashes and executable.number >= 0
        wrong = not self.crashes and self._is_wrong_in_some_run(executable)
        self.bench.drop([executable.number])
        return wrong

    def _is_wrong_in_some_run(self, executable: Made) -> bool:
        remaining = runs_needed(self.shows_in) - 1
        while remaining and not executable.problem and not self.reference.is_wrong(executable):
            executable = self.bench.repeat(executable.number, self.limit_s)
            remaining -= 1
        return not executable.problem and self.reference.is_wrong(executable)


def runs_needed(shows_in: int) -> int:
    """Return how many runs show with a chance of 99 % what ``shows_in`` of the first show."""
    if shows_in >= FIRST_RUNS:
        return 1
    return math.ceil(math.log(_MISSED) / math.log(1 - shows_in / FIRST_RUNS))
