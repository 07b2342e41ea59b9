"""Searches for a plan that is faster by the compiler's own cost model, for a GPU that is absent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.graph.comparison import has_equal_kernels
from fusionscope.history.loops import read_loop_facts
from fusionscope.hlo import Module
from fusionscope.passes.context import Deadline, OutOfTime
from fusionscope.progress import Progress, silent
from fusionscope.reasons.replayed import find_rules
from fusionscope.rerun.plans import Plan, make_plan, own_plan
from fusionscope.rerun.rerun import rerun
from fusionscope.tune.journal import Attempt
from fusionscope.tune.moves import MOVES, Candidate, start_from
from fusionscope.tune.results import Ablation, Best, Design, Tuning, may_join
from fusionscope.versions.context import read_gpu
from fusionscope.what_if.changed_passes import Orders
from fusionscope.what_if.final_figures import FinalFigures

_WIDTH = 3  # plans that are extended at a time
_FASTER = 0.999  # an estimate that is lower by less is none
_COMPILED = 3  # plans
_SINGLE = 0.6  # of the budget


@dataclass(frozen=True, slots=True)
class Scored:
    """A design, its replayed plan, and its estimated time relative to the compiler's own plan."""

    design: Design
    plan: Plan
    ratio: float


def search_by_model(
    module: DumpedModule, *, budget_s: float, python: str, limit_s: float, progress: Progress
) -> Tuning:
    """Replay changes of the plan for ``budget_s``, and combine those that the cost model expects to
    be faster: a beam search. The compiler then compiles the best for the GPU of the dump. The best
    plan is the one with the lowest estimate for its final module, if that has the planned kernels.

    Raises ``UnusableInput`` if the GPU is unknown, or the fusion passes cannot be replayed.
    """
    search = ModelSearch(module, budget_s, progress)
    ranked = search.combine(search.try_singles())
    best = search.compile_best(ranked, python=python, limit_s=limit_s)
    return Tuning(
        module.name,
        tuple(search.attempts),
        search.left,
        best,
        find_rules(module),
        is_measured=False,
    )


class _Compiled(NamedTuple):
    """A design with the estimates of the compiler's final module and of its own, in us."""

    scored: Scored
    before_us: float
    after_us: float


class ModelSearch:
    """A search for ``budget_s`` of processor time, so that it finds the same on a busy machine.
    ``attempts`` are the changes that it tried, ``left`` counts those that it had no time for.
    """

    def __init__(self, module: DumpedModule, budget_s: float, progress: Progress = silent) -> None:
        self.attempts: list[Attempt] = []
        self.left = 0
        self._module, self._gpu = module, read_gpu(module)
        self._own = own_plan(module)
        self._orders: Orders = {}
        self._final = self._read_final()
        self._usual_us = self._time(self._own.after)
        self._begin, self._budget_s = time.process_time(), budget_s
        self._progress = progress

    def _spent(self) -> float:
        """Return the share of the budget that is spent."""
        return (time.process_time() - self._begin) / self._budget_s

    def _read_final(self) -> FinalFigures:
        """Return what predicts the final module. Raises ``UnusableInput`` if there is none."""
        if self._module.final is None:
            raise UnusableInput(f"{self._module.name}: the dump has no final module")
        return FinalFigures(
            self._module.read(self._module.final),
            self._own.after,
            self._module.backend,
            self._gpu,
            loops=read_loop_facts(self._module),
        )

    def _time(self, after: Module) -> float:
        """Return the estimate of the final module, in us, if ``after`` is the one after fusion."""
        time_us = self._final.predict(after).figures.time_us
        if time_us is None:
            raise UnusableInput(f"{self._module.name}: the GPU is neither present nor known")
        return time_us

    def try_singles(self) -> list[Scored]:
        """Score single changes, those of all kinds in turns."""
        start = start_from(self._module, self._own)
        scored: list[Scored] = []
        pending = [move.candidates(start) for move in MOVES]
        count = 0
        while pending:
            for candidates in list(pending):
                candidate = next(candidates, None)
                if candidate is None:
                    pending.remove(candidates)
                elif count and self._spent() > _SINGLE:
                    self.left += 1
                else:
                    count += 1
                    self._progress(f"replaying changes, {count} done")
                    scored += self._score(Design(self._module, parts=(candidate,)))
        return sorted(scored, key=lambda single: single.ratio)

    def combine(self, singles: Sequence[Scored]) -> list[Scored]:
        """Combine single changes that lower the estimate: all of them at once, then fewer, and add
        further ones to the best plans, as long as that helps.
        """
        useful = [single for single in singles if single.ratio < _FASTER]
        ranked = sorted(
            [*useful, *self._together(useful)], key=lambda ranked_design: ranked_design.ratio
        )
        beam = ranked[:_WIDTH]
        combinations: set[frozenset[Candidate]] = set()
        while beam and self._spent() < 1:
            scored: list[Scored] = []
            for design in self._extended(beam, useful):
                if self._spent() > 1 or frozenset(design.parts) in combinations:
                    continue
                combinations.add(frozenset(design.parts))
                self._progress(f"combining changes, {len(combinations)} tried")
                scored += self._score(design)
            lowest = ranked[0].ratio
            beam = sorted(scored, key=lambda ranked_design: ranked_design.ratio)[:_WIDTH]
            ranked = sorted([*ranked, *scored], key=lambda ranked_design: ranked_design.ratio)
            if ranked[0].ratio > lowest * _FASTER:
                break
        return ranked

    def _together(self, useful: Sequence[Scored]) -> Iterator[Scored]:
        """Score the best changes that can be made together: all, half of them, and so on."""
        count = len(useful)
        while count > 1 and self._spent() < 1:
            design = useful[0].design
            for candidate in useful[1:count]:
                if may_join(design, candidate.design):
                    design = replace(design, parts=(*design.parts, *candidate.design.parts))
            self._progress(f"combining {len(design.parts)} changes")
            yield from self._score(design)
            count = min(count, len(design.parts)) // 2 if len(design.parts) > 1 else 0

    def _extended(self, beam: Sequence[Scored], useful: Sequence[Scored]) -> Iterator[Design]:
        for scored in beam:
            for candidate in useful:
                if may_join(scored.design, candidate.design):
                    yield replace(
                        scored.design, parts=(*scored.design.parts, *candidate.design.parts)
                    )

    def _score(self, design: Design, *, is_final: bool = False) -> list[Scored]:
        """Return the scored design; nothing if it is no plan, or makes the same kernels, or if its
        replay does not end within the budget, unless ``is_final``.
        """
        kind, words = design.parts[-1].kind, str(design)
        deadline = None if is_final else Deadline(self._begin + self._budget_s)
        try:
            plan = make_plan(
                self._module,
                design.changes,
                orders=self._orders,
                predicts=False,
                deadline=deadline,
            )
        except OutOfTime:
            self.left += 1
            return []
        except UnusableInput as refusal:
            self.attempts.append(Attempt(kind=kind, changes=words, problem=refusal.problem))
            return []
        if has_equal_kernels(plan.after, self._own.after):
            self.attempts.append(Attempt(kind=kind, changes=words, is_same=True))
            return []
        ratio = self._time(plan.after) / self._usual_us
        self.attempts.append(Attempt(kind=kind, changes=words, estimated=ratio))
        return [Scored(design, plan, ratio)]

    def compile_best(self, ranked: Sequence[Scored], *, python: str, limit_s: float) -> Best | None:
        """Compile the plans with the lowest estimates. Return the best, without useless changes."""
        compiler = partial(self._compile, python=python, limit_s=limit_s)
        compiled = list(filter(None, map(compiler, ranked[:_COMPILED])))
        if not compiled:
            return None
        best = min(compiled, key=lambda compiled_design: compiled_design.after_us)
        while True:
            without = list(self._without_each(best.scored))
            idle = [
                compiled_design
                for _, compiled_design in without
                if compiled_design.ratio * _FASTER < best.scored.ratio
            ]
            simpler = next(filter(None, map(compiler, idle)), None)
            if simpler is None or simpler.after_us * _FASTER > best.after_us:
                break
            best = simpler
        return Best(
            words=str(best.scored.design),
            changes=best.scored.design.changes,
            estimates_us=(best.before_us, best.after_us),
            ablations=tuple(
                Ablation(change, compiled_design.ratio / best.scored.ratio)
                for change, compiled_design in without
            ),
        )

    def _compile(self, scored: Scored, *, python: str, limit_s: float) -> _Compiled | None:
        """Return a plan with the estimates of its modules, if they are as planned and lower."""
        self._progress(f"compiling {scored.design}")
        with TemporaryDirectory() as scratch:
            plan = make_plan(self._module, scored.design.changes, orders=self._orders)
            again = rerun(
                self._module, plan, Path(scratch) / "dump", python=python, limit_s=limit_s
            )
        if again.estimates is None or not again.is_as_planned:
            problem = again.problem or "its final module does not match the plan"
            self.attempts.append(
                Attempt(kind="compilation", changes=str(scored.design), problem=problem)
            )
            return None
        before, after = (estimate.microseconds for estimate in again.estimates)
        return _Compiled(scored, before, after) if after < before * _FASTER else None

    def _without_each(self, best: Scored) -> Iterator[tuple[str, Scored]]:
        """Yield the changes of a plan, each with the plan without it."""
        for less in best.design.without_each():
            part = next(part for part in best.design.parts if part not in less.parts)
            for scored in self._score(less, is_final=True):
                yield str(part), scored
