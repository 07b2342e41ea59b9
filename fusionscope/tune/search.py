"""Searches for a faster plan. Replays score what may help; only measurements count."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.times import estimate
from fusionscope.graph.comparison import has_equal_kernels
from fusionscope.hlo import Module
from fusionscope.passes.context import Deadline, OutOfTime
from fusionscope.progress import Progress, silent
from fusionscope.reasons.replayed import find_rules
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.measuring import Ratio, Speed, Times, judge
from fusionscope.rerun.plans import Plan, make_plan, own_plan
from fusionscope.rerun.profiled import profile_plan
from fusionscope.rerun.programs import find_program
from fusionscope.rerun.rewritten import compile_program
from fusionscope.rerun.running import Measurement, Numbers, is_here, measure, why_not_run
from fusionscope.rerun.workbench import BASELINE, Made, Variant, Workbench
from fusionscope.tune.journal import CONFIRMATION, Attempt, Journal
from fusionscope.tune.modelled import search_by_model
from fusionscope.tune.moves import MOVES, find_rewritings, start_from
from fusionscope.tune.results import (
    Ablation,
    Best,
    Design,
    Tuning,
    beside_faster,
    may_join,
)
from fusionscope.what_if.changed_passes import Orders

_AT_ONCE = 6  # variants that are timed beside each other
_SECONDS = 0.05  # of the budget, for timing these
_LEAST_S = 2.0
_SCORED = 0.2  # of the budget, for replays before anything is measured
_LEAST_REPLAY_S = 2.0  # for a replay, however little of its share is left
_MOST_SCORED = 30  # candidates of one kind
_LIMIT, _LEAST_LIMIT_S = 0.05, 10.0  # of the budget, for compiling and running one variant
_BASES = 2  # rewritten programs whose plans are changed
_FINALISTS = 3
_REWRITING, _SINGLE = 0.25, 0.8  # of the budget: when to go on with what was found so far
_WORSE = 1.5  # estimates that are not worth a measurement, relative to the compiler's own plan
# Each candidate is compiled once, which says nothing about chance. The best is confirmed later.
_NO_NOISE = Ratio(1.0, 1.0, 1.0)
_PROMISING = 0.97  # a ratio, however wide its interval
_SEARCH = 0.6  # of the budget; the rest confirms what was found
_CONFIRMING = 0.1  # of the budget, for the first confirmation; half of it for each further one
_HALVED = 8  # variants that are timed again, for twice as long; then half of them, and so on
_MATTERS = 0.98  # a change matters if it is faster by this
_PROCESSES = 3  # in all of which the best plan has to be faster


def tune(
    module: DumpedModule,
    *,
    budget_s: float,
    journal: Path | None = None,
    keep: Callable[[Design], None] | None = None,
    inputs: Path | None = None,
    seed: int = 0,
    python: str = sys.executable,
    limit_s: float = 600.0,
    progress: Progress = silent,
) -> Tuning:
    """Search for ``budget_s`` in all: rewritten programs first, then changes of the plan for the
    fastest of them, then combinations of what is faster. The best is measured again in processes of
    their own, also without each of its changes, and is the result only if it is faster in all.

    ``keep`` receives each design that is faster than all before it, before that is confirmed. What
    was tried is kept beside ``journal``, the file of the plan. A search for the same program on the
    same inputs does not try again what was not faster then. For a GPU that is absent, the
    compiler's cost model decides instead of measurements. Raises ``UnusableInput`` if nothing can
    be run.
    """
    if module.backend == "gpu" and not is_here(module):
        return search_by_model(
            module, budget_s=budget_s, python=python, limit_s=limit_s, progress=progress
        )
    problem = why_not_run(module)
    if problem:
        raise UnusableInput(f"{module.name}: {problem}, and tuning has to measure")
    progress("compiling the program as it is")
    own_plan_of_module = own_plan(module)
    baseline = inject(module, own_plan_of_module, python=python, limit_s=limit_s)
    if baseline.problem:
        raise UnusableInput(f"{module.name}: its own plan was rejected: {baseline.problem}")
    with ExitStack() as stack:
        bench = stack.enter_context(
            Workbench(module, baseline, inputs=inputs, seed=seed, python=python, limit_s=limit_s)
        )
        journal_of_run = Journal(journal, module, inputs) if journal is not None else None
        search = _Search(module, bench, budget_s * _SEARCH, journal_of_run, keep, progress)
        bases = search.try_rewritings(
            lambda program: compile_program(
                module,
                program,
                Path(stack.enter_context(TemporaryDirectory())) / "dump",
                python=python,
                limit_s=limit_s,
            )
        )
        for number, base in enumerate(bases, 1):
            search.try_plans(base, until=_SINGLE * number / len(bases))
        search.halve()
        search.combine()
        finalists = search.finalists()

        def confirm(designs: Sequence[Design], number: int) -> list[Measurement]:
            progress("measuring the best again")
            plain, *measurements = measure(
                module,
                baseline,
                [Injection(), *(search.prepare(design) for design in designs)],
                inputs=inputs,
                seed=seed + number,
                seconds=budget_s * _CONFIRMING / 2 ** min(number, 1),
                python=python,
                limit_s=limit_s,
            )
            measurements = [beside_faster(plain, measurement) for measurement in measurements]
            for design, measurement in zip(designs, measurements, strict=True):
                search.confirm(design, measurement)
            return measurements

        def with_kernels(best: Best, design: Design) -> Best:
            progress("profiling the best")
            try:
                kernels = profile_plan(
                    module,
                    baseline,
                    search.prepare(design),
                    inputs=inputs,
                    seed=seed,
                    python=python,
                    limit_s=limit_s,
                )
            except UnusableInput as error:
                return structs.replace(best, not_profiled=error.problem)
            return structs.replace(best, kernels=kernels)

        best = None
        if finalists:
            measured = confirm(finalists, 0)
            for design, first in _ranked(finalists, measured)[:_FINALISTS]:
                again = [first]
                while len(again) < _PROCESSES and _is_faster(again[-1]):
                    again += confirm([design], len(again))
                if all(map(_is_faster, again)):
                    ratios = dict(zip(map(str, finalists), map(_ratio, measured), strict=True))
                    best = with_kernels(_best(design, again, ratios, search), design)
                    break
        return Tuning(module.name, tuple(search.attempts), search.left, best, find_rules(module))


def _is_faster(measurement: Measurement) -> bool:
    """Return whether a plan is right, and faster by more than what differs between processes."""
    timing = measurement.timing
    return (
        _is_right(measurement.numbers)
        and timing is not None
        and timing.verdict is Speed.FASTER
        and timing.ratio.value < _MATTERS
    )


def _ranked(
    designs: Sequence[Design], measured: Sequence[Measurement]
) -> list[tuple[Design, Measurement]]:
    """Return the designs that are faster, the best first: the one with the fewest changes among
    those that are about as fast as the fastest.
    """
    pairs = zip(designs, measured, strict=True)
    good = sorted((pair for pair in pairs if _is_faster(pair[1])), key=lambda pair: _ratio(pair[1]))
    ranked: list[tuple[Design, Measurement]] = []
    while good:
        fastest = _ratio(good[0][1])
        alike = [pair for pair in good if _ratio(pair[1]) * _MATTERS <= fastest]
        ranked.append(min(alike, key=lambda pair: len(pair[0].parts)))
        good.remove(ranked[-1])
    return ranked


def _best(
    design: Design, measured: Sequence[Measurement], ratios: Mapping[str, float], search: _Search
) -> Best:
    """Return the result. Its measurement is the middle one of those in several processes.
    ``ratios`` are those of all designs in the first of these.
    """
    measurement = sorted(measured, key=_ratio)[len(measured) // 2]
    ablations = [
        Ablation(str(part), ratios[str(less)] / ratios[str(design)])
        for part, less in zip(design.parts, design.without_each(), strict=False)
        if str(less) in ratios
    ]
    return Best(
        words=str(design),
        changes=design.changes,
        program=design.program,
        measurement=measurement,
        ablations=tuple(ablations),
        compile_s=(search.compile_s(search.start), search.compile_s(design)),
    )


def _ratio(measurement: Measurement) -> float:
    timing = measurement.timing
    return timing.ratio.value if timing is not None else float("inf")


def _is_right(numbers: Numbers | None) -> bool:
    return numbers in (Numbers.EQUAL, Numbers.ROUNDED)


@dataclass(slots=True)
class _Found:
    """A design that was timed, under its number on the workbench."""

    design: Design
    made: Made
    ratio: Ratio


class _Search:
    def __init__(
        self,
        module: DumpedModule,
        bench: Workbench,
        budget_s: float,
        journal: Journal | None,
        keep: Callable[[Design], None] | None,
        progress: Progress,
    ) -> None:
        self.start = Design(module)
        self.attempts: list[Attempt] = []
        self.left = 0
        self._bench = bench
        self._journal = journal
        self._keep = keep
        self._begin = time.monotonic()
        self._budget_s = budget_s
        self._seconds = max(_LEAST_S, budget_s * _SECONDS)
        self._limit_s = max(_LEAST_LIMIT_S, budget_s * _LIMIT)
        self._progress = progress
        self._own: dict[int, Plan] = {}
        self._orders: dict[int, Orders] = {}
        self._compile_s: dict[str, float] = {}
        self._timed: list[_Found] = []
        self._faster: list[_Found] = []

    @property
    def _fastest(self) -> _Found:
        return min(self._faster, key=lambda timed: timed.ratio.value)

    def finalists(self) -> list[Design]:
        """Return the fastest designs, and the first of them without each of its changes."""
        ranked = sorted(self._faster, key=lambda timed: timed.ratio.value)[:_FINALISTS]
        designs = [timed.design for timed in ranked if timed.ratio.value < 1]
        designs += designs[0].without_each() if designs else []
        return list({str(design): design for design in designs if design}.values())

    def confirm(self, design: Design, measurement: Measurement) -> None:
        """Add a measurement in another process. It is not kept for later searches."""
        timing = measurement.timing
        attempt = Attempt(
            kind=CONFIRMATION,
            changes=str(design),
            problem=measurement.problem,
            numbers=measurement.numbers,
            ratio=timing.ratio if timing is not None else None,
            verdict=timing.verdict if timing is not None else None,
            compile_s=self.compile_s(design),
        )
        self.attempts.append(attempt)

    def compile_s(self, design: Design) -> float:
        return self._compile_s.get(str(design), 0.0)

    def _spent(self) -> float:
        """Return the share of the budget that is spent."""
        return (time.monotonic() - self._begin) / self._budget_s

    def try_rewritings(self, compile_program: Callable[[Module], DumpedModule]) -> list[Design]:
        """Time rewritten programs as the compiler makes them. Return what is worth changing the
        plan of: the program as it is, and the best rewritten ones. Unrolled steps may be slower
        until they are fused.
        """
        baseline = self._bench.make(Variant(Injection()), self._limit_s)
        self._compile_s[str(self.start)] = baseline.compile_s
        program, backend = find_program(self.start.module), self.start.module.backend or ""
        designs = [
            Design(self.start.module, rewriting.program, (rewriting.candidate,))
            for rewriting in find_rewritings(program, backend)
        ]
        designs = [design for design in designs if not self._is_known(design)]
        for some in _batches(designs):
            self._progress("trying rewritten programs")
            if self._spent() < _REWRITING:
                self._time([(design, Variant(Injection(), design.program)) for design in some])
        bases = [self.start]
        ranked = sorted(self._timed, key=lambda design: design.ratio.value)
        for timed in ranked[:_BASES]:
            if timed.ratio.value < _WORSE and timed.design.program is not None:
                self._progress(f"compiling {timed.design}")
                try:
                    compiled = compile_program(timed.design.program)
                except UnusableInput as error:
                    self._fail(timed.design, str(error))
                    continue
                timed.design = replace(timed.design, module=compiled)
                bases.append(timed.design)
        # A plan needs the dump of the program that it is for.
        self._faster = [e for e in self._faster if any(e.design is base for base in bases)]
        return bases

    def try_plans(self, base: Design, until: float) -> None:
        """Try single changes of the plan of ``base``."""
        if base is not self.start and self._spent() > until:
            self.left += 1  # at least: what would be tried is unknown
            return
        share = (until - self._spent()) * _SCORED
        ready = self._scored(base, self._spent() + max(0.0, share))
        count = 0
        for some in _batches(ready):
            if count and self._spent() > until:
                break
            self._progress(f"trying changes, {count} of {len(ready)} done")
            self._try_designs(some)
            count += len(some)
        self.left += len(ready) - count

    def halve(self) -> None:
        """Time the most promising variants again, and half of these for twice as long."""
        count, seconds = _HALVED, 2 * self._seconds
        while count > 1 and len(self._faster) > 1:
            self._progress(f"timing the best {min(count, len(self._faster))} again")
            fastest = sorted(self._faster, key=lambda candidate: candidate.ratio.value)[:count]
            numbers = [BASELINE, *(candidate.made.number for candidate in fastest)]
            for candidate, timed in zip(
                fastest, self._bench.race(numbers, seconds)[1:], strict=True
            ):
                candidate.ratio = timed.ratio
            self._faster = [candidate for candidate in fastest if candidate.ratio.low < 1]
            count, seconds = count // 2, 2 * seconds

    def combine(self) -> None:
        """Add to the best plan what was faster by itself, as long as that makes it faster."""
        names = {attempt.changes for attempt in self.attempts}
        while self._faster and self._spent() < 1:
            best = self._fastest
            ranked = sorted(self._faster, key=lambda candidate: candidate.ratio.value)
            together = [
                replace(best.design, parts=(*best.design.parts, *candidate.design.parts))
                for candidate in ranked
                if candidate.design.parts and may_join(best.design, candidate.design)
            ]
            together = [candidate for candidate in together if str(candidate) not in names]
            together = [candidate for candidate in together if not self._is_known(candidate)][
                :_AT_ONCE
            ]
            if not together:
                break
            names.update(map(str, together))
            self._progress("trying the faster changes together")
            self._try_designs(together)
            if self._fastest is best:
                break

    def _scored(self, base: Design, until: float) -> list[Design]:
        """Return designs with one more change, those of all kinds in turns. Within a kind, the
        estimate for the replayed plan decides; plans that are much worse are left out.
        """
        module, begin = base.module, self._spent()
        current_plan = self._own_plan(module)
        start = start_from(module, current_plan)
        usual = _estimate(module, current_plan.after)
        scored: list[list[Design]] = []
        for number, move in enumerate(MOVES, 1):
            self._progress(f"replaying changes: {move.kind}")
            scores: list[tuple[float, Design]] = []
            end = begin + (until - begin) * number / len(MOVES)
            is_stopped = False
            for candidate in move.candidates(start):
                is_late = self._spent() > end
                if len(scores) >= _MOST_SCORED or (is_late and (scores or is_stopped)):
                    self.left += 1
                    continue
                design = replace(base, parts=(candidate,))
                try:
                    plan = None if self._is_known(design) else self._plan(design, end)
                except OutOfTime:
                    self._stop(design)
                    plan, is_stopped = None, True
                if plan is not None:
                    score = _estimate(module, plan.after) / usual
                    if score < _WORSE or candidate.kind == "pass":
                        scores.append((score, design))
            scores.sort(key=lambda design: design[0])
            scored.append([design for _, design in scores])
        return [design for turn in zip_longest(*scored) for design in turn if design is not None]

    def _own_plan(self, module: DumpedModule) -> Plan:
        if id(module) not in self._own:
            self._own[id(module)] = own_plan(module)
        return self._own[id(module)]

    def _plan(self, design: Design, until: float | None = None) -> Plan | None:
        """Return the plan of a design. If it cannot be made, or makes the same kernels, add the
        attempt with the reason and return None. Raises ``OutOfTime`` when the share ``until`` of
        the budget is spent.
        """
        deadline = None
        if until is not None:
            end = self._begin + until * self._budget_s
            least = time.monotonic() + _LEAST_REPLAY_S
            deadline = Deadline(max(end, least), time.monotonic)
        if not design.parts:
            return self._own_plan(design.module)
        kind = design.parts[-1].kind
        try:
            orders = self._orders.setdefault(id(design.module), {})
            plan = make_plan(
                design.module, design.changes, orders=orders, predicts=False, deadline=deadline
            )
            is_same = has_equal_kernels(plan.after, self._own_plan(design.module).after)
        except UnusableInput as refusal:
            self._add(Attempt(kind=kind, changes=str(design), problem=_reason(design, refusal)))
            return None
        if is_same:
            self._add(Attempt(kind=kind, changes=str(design), is_same=True))
            return None
        return plan

    def prepare(self, design: Design) -> Injection:
        """Return what a design injects, or why it cannot."""
        plan = self._plan(design)
        return Injection(problem="no plan") if plan is None else self._inject(design, plan)

    def _try_designs(self, designs: Sequence[Design]) -> None:
        ready: list[tuple[Design, Variant]] = []
        for design in designs:
            try:
                plan = self._plan(design, until=1.0)
            except OutOfTime:
                self._stop(design)
                continue
            if plan is None:
                continue
            try:
                injection = self._inject(design, plan)
            except UnusableInput as error:
                injection = Injection(problem=str(error))
            if injection.problem:
                self._fail(design, injection.problem)
            else:
                ready.append((design, Variant(injection)))
        self._time(ready)

    def _inject(self, design: Design, plan: Plan) -> Injection:
        return inject(design.module, plan, python="", limit_s=0.0, receive=self._bench.receive)

    def _add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        if self._journal is not None:
            self._journal.add(attempt)

    def _is_known(self, design: Design) -> bool:
        """Return whether an earlier search tried ``design``, and found that it cannot be faster. A
        rewritten program that is slower by itself may be faster with another plan.
        """
        ratio = self._journal.known.get(str(design)) if self._journal is not None else None
        if ratio is None or not ratio.is_above(_PROMISING):
            return False
        if ratio.ratio is not None and not design.parts:
            return False
        self.attempts.append(ratio)
        return True

    def _stop(self, design: Design) -> None:
        """Add an attempt that took too long. A longer search may try it again."""
        kind = design.parts[-1].kind
        problem = "its replay was stopped: it took too much of the budget"
        self.attempts.append(Attempt(kind=kind, changes=str(design), problem=problem))

    def _fail(self, design: Design, problem: str) -> None:
        kind = (*design.rewritings, *design.parts)[-1].kind
        self._add(Attempt(kind=kind, changes=str(design), problem=problem))

    def _time(self, variants: Sequence[tuple[Design, Variant]]) -> None:
        """Compile ``variants``, compare their results, and time those that are right."""
        running: list[tuple[Design, Made, Measurement]] = []
        failed: list[Design] = []
        for design, variant in variants:
            if _is_longer(design, failed):
                continue
            if (running or failed) and self._spent() > 1:
                self.left += 1
                continue
            executable = self._bench.make(variant, self._limit_s)
            self._compile_s[str(design)] = executable.compile_s
            measurement = Measurement(executable.problem, executable.results)
            if executable.problem:
                failed.append(design)
                self._fail(design, executable.problem)
            elif not _is_right(measurement.numbers):
                self._fail(design, "its results differ")
            else:
                running.append((design, executable, measurement))
        if not running:
            return
        beside = [self._fastest.made.number] if self._faster else []
        numbers = [BASELINE, *beside, *(executable.number for _, executable, _ in running)]
        try:
            times = self._bench.race(numbers, self._seconds, drops_slower=True)
        except UnusableInput as error:  # one of them ended the process
            for design, executable, _ in running:
                self._fail(design, error.problem)
                self._bench.drop([executable.number])
            return
        for (design, executable, measurement), timed in zip(
            running, times[1 + len(beside) :], strict=True
        ):
            self._judge(design, executable, measurement, timed)
        ranked = sorted(self._faster, key=lambda candidate: candidate.ratio.value)
        self._faster = ranked[:_HALVED]
        keep = {candidate.made.number for candidate in self._faster}
        numbers = [
            *(executable.number for _, executable, _ in running),
            *(candidate.made.number for candidate in ranked),
        ]
        self._bench.drop([number for number in numbers if number not in keep])

    def _judge(
        self, design: Design, executable: Made, measurement: Measurement, timed: Times
    ) -> None:
        verdict = judge(timed.ratio, _NO_NOISE)
        kind = (*design.rewritings, *design.parts)[-1].kind
        self._add(
            Attempt(
                kind=kind,
                changes=str(design),
                numbers=measurement.numbers,
                ratio=timed.ratio,
                verdict=verdict,
                compile_s=executable.compile_s,
            )
        )
        self._timed.append(_Found(design, executable, timed.ratio))
        if timed.ratio.value < _PROMISING:
            self._faster.append(self._timed[-1])
            if self._keep is not None and self._fastest is self._timed[-1]:
                self._keep(design)


def _reason(design: Design, refusal: UnusableInput) -> str:
    """Return why a change cannot be made, without the names of module and change."""
    problem = refusal.problem.removeprefix(f"{design.module.name}: ")
    return problem.removeprefix(f"cannot {design.parts[-1]}: ") if design.parts else problem


def _is_longer(design: Design, failed: Sequence[Design]) -> bool:
    """Return whether a loop is unrolled further than one of ``failed`` unrolls it."""
    return not design.parts and any(
        rewriting.recipe is not None
        and failed_rewriting.recipe is not None
        and rewriting.recipe.id == failed_rewriting.recipe.id
        for failed_design in failed
        if not failed_design.parts
        for rewriting, failed_rewriting in zip(
            design.rewritings, failed_design.rewritings, strict=True
        )
    )


def _estimate(module: DumpedModule, after: Module) -> float:
    prediction = estimate(after, module.backend, None)
    return prediction.microseconds if prediction is not None else 1.0


def _batches(designs: Sequence[Design]) -> Iterator[Sequence[Design]]:
    for first in range(0, len(designs), _AT_ONCE):
        yield designs[first : first + _AT_ONCE]
