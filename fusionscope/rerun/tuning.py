"""Searches for a faster plan, one change at a time. Only measurements count."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from operator import or_
from pathlib import Path

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.explain.replayed import find_rules
from fusionscope.graph.comparison import has_equal_kernels
from fusionscope.history.outcomes import Outcome, pairs_after
from fusionscope.passes.overrides import PairPattern
from fusionscope.progress import Progress, silent
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.measuring import Speed
from fusionscope.rerun.plans import WRAPPER, Plan, find_fusing_runs, make_plan, own_plan
from fusionscope.rerun.running import Measurement, Numbers, measure, why_not_run
from fusionscope.rules.changes import Changes
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import replay

_AT_ONCE = 6  # variants that are timed beside each other
_SECONDS = 3.0  # of timing for these
_CONFIRMING = 3  # times as long, for accepted changes


@dataclass(frozen=True, slots=True)
class Attempt:
    """One change that was tried. ``measurement`` is None if it was not run: because of ``problem``,
    or because it produces identical kernels.
    """

    changes: Changes
    problem: str
    measurement: Measurement | None

    @property
    def is_better(self) -> bool:
        found = self.measurement
        return (
            found is not None
            and found.numbers in (Numbers.EQUAL, Numbers.ROUNDED)
            and found.timing is not None
            and found.timing.verdict is Speed.FASTER
        )

    @property
    def ratio(self) -> float:
        """The ratio of its time to the baseline's, infinite if there is none."""
        timing = self.measurement.timing if self.measurement is not None else None
        return timing.ratio.median if timing is not None else float("inf")


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of a search. ``attempts`` are in the order in which they were made; ``left`` is
    the number of changes that were not tried in time. ``best`` was confirmed by a longer
    measurement, and is None if nothing was faster. ``rules`` are the changed and replayed ones.
    """

    module: str
    attempts: tuple[Attempt, ...]
    left: int
    best: Attempt | None
    rules: RulesUsed | None = None


def tune(
    module: DumpedModule,
    *,
    budget_s: float,
    inputs: Path | None = None,
    seed: int = 0,
    python: str = sys.executable,
    limit_s: float = 600.0,
    progress: Progress = silent,
) -> Tuning:
    """Try single changes for ``budget_s``, and combine those that are faster. The changes are: each
    fusion pass disabled, each refused pair (the most bytes between producer and consumer first),
    and each refusing rule that correctness does not depend on.

    Raises ``UnusableInput`` if nothing can be run.
    """
    problem = why_not_run(module)
    if problem:
        raise UnusableInput(f"{module.name}: {problem}, and tuning has to measure")
    end = time.monotonic() + budget_s
    progress("compiling the program as it is")
    own = own_plan(module)
    baseline = inject(module, own, python=python, limit_s=limit_s)
    if baseline.problem:
        raise UnusableInput(f"{module.name}: its own plan was rejected: {baseline.problem}")

    def attempt(some: Sequence[Changes], seconds: float) -> list[Attempt]:
        return _attempt(
            module, own, baseline, some, inputs, seed, seconds, python=python, limit_s=limit_s
        )

    candidates = list(dict.fromkeys(find_candidates(module, own)))
    attempts: list[Attempt] = []
    # The first compilations may use up a short time: some changes are tried in any case.
    while len(attempts) < len(candidates) and (not attempts or time.monotonic() < end):
        progress(f"trying changes, {len(attempts)} of {len(candidates)} done")
        some = candidates[len(attempts) : len(attempts) + _AT_ONCE]
        attempts += attempt(some, _SECONDS)
    left = len(candidates) - len(attempts)
    better = sorted((each for each in attempts if each.is_better), key=lambda each: each.ratio)
    together = [reduce(or_, (e.changes for e in better[:n])) for n in range(2, len(better) + 1)]
    if together:
        progress("trying the faster changes together")
        attempts += attempt(together[:_AT_ONCE], _SECONDS)
    better = sorted((each for each in attempts if each.is_better), key=lambda each: each.ratio)
    best = None
    if better:
        progress("measuring the best again")
        (again,) = attempt([better[0].changes], _SECONDS * _CONFIRMING)
        best = again if again.is_better else None
    return Tuning(module.name, tuple(attempts), left, best, find_rules(module))


def find_candidates(module: DumpedModule, own: Plan) -> Iterator[Changes]:
    """Yield disabled passes, then rules and pairs in turns."""
    for run in find_fusing_runs(module):
        if run.pass_name != WRAPPER:
            yield Changes(disabled=(run.pass_name,))
    rules = (Changes(disabled=(id,)) for id in _refusing_rules(module, own))
    pairs = sorted(
        (pair for pair in pairs_after(own.before, own.after) if pair.outcome is Outcome.NOT_FUSED),
        key=lambda pair: -pair.bytes_between,
    )
    wishes = (
        Changes(allowed=(PairPattern(pair.producer.name, pair.consumer.name),)) for pair in pairs
    )
    for turn in zip_longest(rules, wishes):
        yield from (each for each in turn if each is not None)


def _refusing_rules(module: DumpedModule, own: Plan) -> list[str]:
    """Return the refusing rules that correctness does not depend on, the most frequent first."""
    compiler, context = choose_compiler(module).compiler, read_context(module)
    rules = {rule.id: rule for book in compiler.books for rule in book}
    refusals: Counter[str] = Counter()
    current = own.before
    for run in find_fusing_runs(module):
        plan = replay(run.pass_name, current, context, compiler)
        refusals.update(each.decision.rule for each in plan.decisions if not each.decision.allow)
        current = plan.module
    return [id for id, _ in refusals.most_common() if id in rules and not rules[id].is_legality]


def _attempt(
    module: DumpedModule,
    own: Plan,
    baseline: Injection,
    some: Sequence[Changes],
    inputs: Path | None,
    seed: int,
    seconds: float,
    *,
    python: str,
    limit_s: float,
) -> list[Attempt]:
    """Compile and run ``some`` changes beside each other."""
    found: dict[Changes, Attempt] = {}
    ready: dict[Changes, Injection] = {}
    for changes in some:
        try:
            plan = make_plan(module, changes)
        except UnusableInput as refusal:
            found[changes] = Attempt(changes, refusal.problem, None)
            continue
        if has_equal_kernels(plan.after, own.after):
            found[changes] = Attempt(changes, "", None)
        else:
            ready[changes] = inject(module, plan, python=python, limit_s=limit_s)
    if ready:
        measured = measure(
            module,
            baseline,
            list(ready.values()),
            inputs=inputs,
            seed=seed,
            seconds=seconds,
            python=python,
            limit_s=limit_s,
        )
        for changes, measurement in zip(ready, measured, strict=True):
            found[changes] = Attempt(changes, measurement.problem, measurement)
    return [found[changes] for changes in some]
