"""Compiles a plan with the real compiler, and examines the result."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import Captured, capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, Stage, open_dump
from fusionscope.facts.result import TimeEstimate
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import estimate
from fusionscope.graph.comparison import Divergence, find_divergence, has_equal_kernels
from fusionscope.history.kernels import Totals, total_kernels
from fusionscope.history.outcomes import TOGETHER, Outcome, Pair
from fusionscope.hlo import Module, to_text
from fusionscope.passes.overrides import BARRIER
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import Plan, Rest
from fusionscope.rerun.programs import (
    constants_flag,
    disable_flag,
    find_program,
    find_target,
    own_flags,
    require_final,
)
from fusionscope.rerun.requests import Request, find_hook, find_made, look_up
from fusionscope.rules.changes import NO_CHANGES
from fusionscope.system.files import write_file
from fusionscope.versions.context import read_target
from fusionscope.what_if.changed_passes import ChangedPasses


@dataclass(frozen=True, slots=True)
class RerunPair:
    """A pair with another outcome than in the plan, or than in the dump.

    producer: name of the producer before fusion
    consumer: name of the consumer before fusion
    before: outcome in the dump
    after: outcome in the new module
    """

    producer: str
    consumer: str
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The result of compiling ``plan``, in words. ``has_plan`` is false if only flags differ.

    ``baseline`` is the final module of the dump. ``variant`` is the new final module, or None if
    the compiler did not get there; ``problem`` then says why. ``changed`` are pairs that are
    together in only one of the two. ``unplanned`` are pairs with another outcome than planned.
    ``requests`` are the pairs to fuse or keep apart, with their outcomes. ``divergence`` is where
    the compiler's input differs from the plan. ``is_same`` is whether both final modules have the
    same kernels. ``drops_donations`` is whether results no longer share the buffers of donated
    arguments, as by the hook of jaxlib 0.10. ``has_model`` is whether the compiler estimates times.
    ``estimates`` are the times of both, or None if they are unknown. ``predicted`` are the figures
    of the final module as ``explain`` predicts them, or None if it does not.
    ``injection`` is the prepared plan.
    """

    module: str
    plan: str
    has_plan: bool
    captured: Captured | None
    problem: str
    baseline: Totals
    variant: Totals | None = None
    changed: tuple[RerunPair, ...] = ()
    unplanned: tuple[RerunPair, ...] = ()
    requests: tuple[Request, ...] = ()
    divergence: Divergence | None = None
    is_same: bool = False
    drops_donations: bool = False
    has_model: bool = False
    estimates: tuple[TimeEstimate, TimeEstimate] | None = None
    predicted: Figures | None = None
    injection: Injection

    @property
    def holds(self) -> bool:
        """Whether the final module matches the plan, every request, and the prediction."""
        is_done = not any(request.problem for request in self.requests)
        return self.is_as_planned and self.is_as_predicted and is_done

    @property
    def is_as_planned(self) -> bool:
        """Whether the compiler took the plan, and left every pair as planned."""
        return self.variant is not None and not self.unplanned and self.divergence is None

    @property
    def is_as_predicted(self) -> bool:
        """Whether launches, bytes and estimated time are those that ``explain`` predicts."""
        if self.variant is None or self.predicted is None:
            return True
        expected = self.predicted
        if (expected.launches, expected.bytes_moved) != self.variant:
            return False
        if self.estimates is None or expected.time_us is None:
            return True
        return isclose(self.estimates[1].microseconds, expected.time_us, rel_tol=1e-6)


def rerun(
    module: DumpedModule,
    plan: Plan | None,
    directory: Path,
    *,
    flags: Sequence[str] = (),
    python: str = sys.executable,
    limit_s: float = 600.0,
) -> Rerun:
    """Compile the program of ``module`` again, with ``plan`` instead of the compiler's own fusions
    (with ``flags`` alone if it is None). Dump that into ``directory``, which must be empty or new.

    If the plan crashes the compiler, the result says so. Raises ``UnusableInput`` if the dump lacks
    the program or its device, or if there is no compiler.
    """
    if plan is None and module.backend == "tpu":  # whose passes are not replayed
        words = " ".join(flags)
        return recompile(
            module, None, directory, words=words, flags=flags, python=python, limit_s=limit_s
        )
    final = require_final(module)
    baseline = total_kernels(final, module.backend)
    injection = Injection(flags=tuple(disable_flag(module)))
    if plan is not None:
        injection = inject(module, plan, python=python, limit_s=limit_s)
    injection = replace(injection, flags=(*injection.flags, *flags))
    words = plan.words if plan is not None else " ".join(flags)
    captured: Captured | None = None
    dump: DumpedModule | None = None
    if not injection.problem:
        captured = compile_again(module, injection, directory, python=python, limit_s=limit_s)
        dump = _made(captured)
    problem = captured.problem if captured is not None else injection.problem
    result = Rerun(
        module=module.name,
        plan=words,
        has_plan=plan is not None,
        captured=captured,
        problem=problem,
        baseline=baseline,
        injection=injection,
    )
    if dump is None or dump.final is None:
        return result
    divergence = None
    hook = find_hook(dump)
    if hook is not None and injection.module is not None:
        divergence = find_divergence(injection.module, dump.read(hook))
    ends = dump.read(dump.final)
    passes = plan.passes if plan is not None else ChangedPasses(module, NO_CHANGES)
    was = passes.pairs_in(*_stages_after(passes.start, module), ("the final module", final))
    now = find_made(plan, dump, ends) if plan else passes.pairs_in(("the final module", ends))
    is_same = has_equal_kernels(final, ends)
    return replace(
        result,
        variant=total_kernels(ends, module.backend),
        changed=tuple(_differing(was, now)),
        unplanned=tuple(_unplanned(plan, now)) if plan is not None else (),
        requests=_requests(plan, now, dump, is_same) if plan is not None else (),
        divergence=divergence,
        is_same=is_same,
        drops_donations=_shares_buffers(final) and not _shares_buffers(ends),
        has_model=module.backend != "cpu",
        estimates=_estimates(module, final, ends),
        predicted=plan.predicted if plan is not None and not flags else None,
    )


def recompile(
    module: DumpedModule,
    program: Module | None,
    directory: Path,
    *,
    words: str,
    flags: Sequence[str] = (),
    python: str = sys.executable,
    limit_s: float = 600.0,
) -> Rerun:
    """Compile ``program``, which computes the same as that of ``module`` and is that if it is None,
    as the latter was, with further ``flags``; ``words`` say what changes. Dump that into
    ``directory``, which must be empty or new. Raises ``UnusableInput`` as ``rerun`` does.
    """
    final = require_final(module)
    injection = Injection(flags=(*disable_flag(module), *flags), program=program)
    captured = compile_again(module, injection, directory, python=python, limit_s=limit_s)
    result = Rerun(
        module=module.name,
        plan=words,
        has_plan=False,
        captured=captured,
        problem=captured.problem,
        baseline=total_kernels(final, module.backend),
        has_model=module.backend != "cpu",
        injection=injection,
    )
    dump = _made(captured)
    if dump is None or dump.final is None:
        return result
    ends = dump.read(dump.final)
    return replace(
        result,
        variant=total_kernels(ends, module.backend),
        is_same=has_equal_kernels(final, ends),
        estimates=_estimates(module, final, ends),
    )


def _shares_buffers(module: Module) -> bool:
    return "input_output_alias" in module.attributes


def _stages_after(start: Stage, module: DumpedModule) -> Iterator[tuple[str, Module]]:
    """Yield the stages between ``start`` and the final one, with their labels."""
    stages = module.stages
    for stage in stages[stages.index(start) + 1 :]:
        if not stage.is_final:
            yield stage.label, module.read(stage)


def _requests(
    plan: Plan, pairs: Sequence[Pair], dump: DumpedModule, is_same: bool
) -> tuple[Request, ...]:
    if plan.is_own:
        return (
            ()
            if is_same
            else (Request(plan.words, "its kernels differ from those in the dump", 0, 0),)
        )
    return look_up(plan, pairs, dump)


def _estimates(
    module: DumpedModule, final: Module, ends: Module
) -> tuple[TimeEstimate, TimeEstimate] | None:
    target = read_target(module)
    before, after = (estimate(module_text, module.backend, target) for module_text in (final, ends))
    return None if before is None or after is None else (before, after)


def compile_again(
    module: DumpedModule,
    injection: Injection,
    directory: Path,
    *,
    python: str,
    limit_s: float,
) -> Captured:
    """Compile the program of ``module``, or that of ``injection``, with an injected plan."""
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "program.hlo"
        write_file(file, to_text(injection.program or find_program(module)))
        return capture(
            Program(kind=ProgramKind.HLO, file=file),
            find_target(module),
            directory,
            flags=[*own_flags(module), *constants_flag(module), *injection.flags],
            python=python,
            limit_s=limit_s,
            replacement=to_text(injection.module) if injection.module is not None else None,
        )


def _made(captured: Captured) -> DumpedModule | None:
    if not captured.has_stages:
        return None
    (module,) = open_dump(captured.directory).modules
    return module


def _unplanned(plan: Plan, pairs: Sequence[Pair]) -> Iterator[RerunPair]:
    differing = _differing(plan.passes.pairs_in(("the plan", plan.after)), pairs)
    if plan.rest is not Rest.XLA:
        return differing
    apart = {
        (barrier.operands[0].name, user.name)
        for barrier in plan.after.walk()
        if barrier.opcode == BARRIER
        for user in barrier.users
    }
    return (
        pair
        for pair in differing
        if pair.before in TOGETHER or (pair.producer, pair.consumer) in apart
    )


def _differing(planned: Sequence[Pair], compiled: Sequence[Pair]) -> Iterator[RerunPair]:
    """Yield the pairs before fusion that are together in only one of two modules."""
    for first, second in zip(planned, compiled, strict=True):
        outcomes = first.outcome, second.outcome
        if Outcome.GONE not in outcomes and len({outcome in TOGETHER for outcome in outcomes}) > 1:
            yield RerunPair(first.producer.name, first.consumer.name, first.outcome, second.outcome)
