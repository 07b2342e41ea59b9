"""Compiles several variants of one program and, if its device is present, runs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import PROFILE
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.facts.times import estimate
from fusionscope.history.kernels import total_kernels
from fusionscope.hlo import Module
from fusionscope.progress import Progress, each_of, silent
from fusionscope.reasons.replayed import find_rules
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import Plan, Rest, make_plan, own_plan
from fusionscope.rerun.profiled import MeasuredKernels, compare_profiles
from fusionscope.rerun.programs import disable_flag, require_final
from fusionscope.rerun.rerun import Rerun, recompile, rerun
from fusionscope.rerun.running import (
    CannotRun,
    Measurement,
    Numbers,
    is_here,
    measure,
    why_not_run,
)
from fusionscope.rules.changes import Changes
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs
from fusionscope.what_if.changed_passes import ChangedPasses


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant. ``name`` is that of its dump. ``plan`` is None if only ``flags`` of XLA differ.
    ``rewritten`` is the program that the plan is for, as the compiler makes it, None for that of
    the dump. ``program`` is one to compile with ``flags`` alone, ``words`` says what it is.
    """

    name: str
    plan: Plan | None
    flags: tuple[str, ...] = ()
    rewritten: DumpedModule | None = None
    program: Module | None = None
    words: str = ""


def make_variant(
    module: DumpedModule,
    name: str,
    changes: Changes,
    remainder: Rest,
    flags: tuple[str, ...],
    rewritten: DumpedModule | None = None,
) -> Variant:
    """Return a variant with a plan, or with flags alone if it only disables passes and what follows
    them cannot be replayed. Raises ``UnusableInput`` like ``make_plan``.
    """
    if rewritten is not None:
        plan = make_plan(rewritten, changes, remainder) if changes else own_plan(rewritten)
        return Variant(name, plan, flags, rewritten)
    passes = {run.pass_name for run in find_runs(module)}
    left_out = changes.disabled
    if left_out and changes == Changes(disabled=left_out) and passes.issuperset(left_out):
        replayed = ChangedPasses(module, changes)
        if replayed.is_late or replayed.obstacle:
            return Variant(name, None, (*disable_flag(module, *left_out), *flags))
    return Variant(name, make_plan(module, changes, remainder), flags)


@dataclass(frozen=True, slots=True)
class Tried:
    """One tried variant. ``measurement`` is None if nothing was run, ``kernels`` also if no profile
    of the runs could be recorded or read: ``not_profiled`` says why. ``plan_file`` is the file with
    which ``fusionscope.apply`` takes the program that was tried, None if there is none.
    """

    name: str
    rerun: Rerun
    measurement: Measurement | None
    kernels: MeasuredKernels | None = None
    not_profiled: str = ""
    plan_file: Path | None = None

    @property
    def holds(self) -> bool:
        """Whether the final module matches the plan, and computes the same results."""
        if self.measurement is not None and self.measurement.numbers in (None, Numbers.DIFFERENT):
            return False
        return self.rerun.holds


@dataclass(frozen=True, slots=True)
class Trial:
    """The tried variants. ``not_run`` says why nothing was run; it is empty if it was, or if no run
    was requested. ``rules`` are the changed and replayed ones, or None if no plan is made of any.
    """

    module: str
    variants: tuple[Tried, ...]
    not_run: str
    rules: RulesUsed | None = None


def try_variants(
    module: DumpedModule,
    variants: Sequence[Variant],
    directory: Path,
    *,
    baseline: Plan | None,
    runs: bool = True,
    inputs: Path | None = None,
    seed: int = 0,
    seconds: float = 2.0,
    is_strict: bool = False,
    python: str = sys.executable,
    limit_s: float = 600.0,
    progress: Progress = silent,
) -> Trial:
    """Dump each of ``variants`` into ``directory``, or into a folder of it if there are several.

    If ``runs`` is set, they are run beside ``baseline`` on ``inputs`` (an .npz) or random ones, and
    timed for ``seconds``, no longer if that ``is_strict``. Without a baseline, they run beside the
    compiler's own choice, which may differ from the kernels of the dump. Raises ``UnusableInput``
    if the dump lacks the program or its device, there is no compiler, or the inputs do not fit.
    """
    reruns = [
        _rerun(
            module,
            variant,
            directory if len(variants) == 1 else directory / variant.name,
            python=python,
            limit_s=limit_s,
        )
        for variant, _ in each_of(variants, lambda variant: f"compiling {variant.name}", progress)
    ]
    not_run = why_not_run(module) if runs else ""
    rules = find_rules(module) if baseline is not None else None
    attempts = [
        Tried(variant.name, again, None) for variant, again in zip(variants, reruns, strict=True)
    ]
    if runs and not not_run:
        progress("running")
        injection = Injection()
        if baseline is not None:
            injection = inject(module, baseline, python=python, limit_s=limit_s)
        with TemporaryDirectory() as scratch:
            own_profile = Path(scratch)
            try:
                measured = measure(
                    module,
                    injection,
                    [variant.injection for variant in reruns],
                    inputs=inputs,
                    seed=seed,
                    seconds=seconds,
                    python=python,
                    limit_s=limit_s,
                    is_strict=is_strict,
                    progress=progress,
                    profiles=[own_profile, *map(_profile_of, reruns)],
                )
                attempts = [
                    _with_profile(module, replace(variant, measurement=measurement), own_profile)
                    for variant, measurement in zip(attempts, measured, strict=True)
                ]
            except CannotRun as problem:
                not_run = problem.reason
    if runs and not_run and not is_here(module):
        progress("comparing numbers on a CPU")
        try:
            attempts = [
                _with_cpu_numbers(module, attempt, inputs, seed, python, limit_s)
                for attempt in attempts
            ]
        except UnusableInput as problem:
            not_run += f", and on a CPU: {problem}"
    return Trial(module.name, tuple(attempts), not_run, rules)


def _with_cpu_numbers(
    module: DumpedModule,
    attempt: Tried,
    inputs: Path | None,
    seed: int,
    python: str,
    limit_s: float,
) -> Tried:
    """Return ``attempt`` with its numbers on a CPU, if it is another program. Raises
    ``UnusableInput`` if they cannot be compared.
    """
    injection = attempt.rerun.injection
    if injection.program is None or attempt.rerun.variant is None:
        return attempt
    (measured,) = measure(
        module,
        Injection(),
        [Injection(program=injection.program)],
        inputs=inputs,
        seed=seed,
        seconds=0,
        python=python,
        limit_s=limit_s,
        is_strict=True,
        on_cpu=True,
    )
    if measured.problem:
        raise UnusableInput(measured.problem)
    return replace(attempt, measurement=Measurement("", measured.results, on_cpu=True))


def _rerun(
    module: DumpedModule, variant: Variant, directory: Path, *, python: str, limit_s: float
) -> Rerun:
    """Return the result of a variant, beside the final module of ``module``."""
    if variant.program is not None:
        return recompile(
            module,
            variant.program,
            directory,
            words=variant.words,
            flags=variant.flags,
            python=python,
            limit_s=limit_s,
        )
    of = variant.rewritten or module
    again = rerun(of, variant.plan, directory, flags=variant.flags, python=python, limit_s=limit_s)
    if variant.rewritten is None:
        return again
    final = require_final(module)
    before = estimate(final, module.backend, read_context(module).gpu)
    both = None
    if before is not None and again.estimates is not None:
        both = before, again.estimates[1]
    return replace(
        again,
        plan=f"the rewritten program, {again.plan}",
        baseline=total_kernels(final, module.backend),
        estimates=both,
        changed=(),  # by names of another program
        is_same=False,
    )


def _profile_of(again: Rerun) -> Path | None:
    """Return where the profile of a variant goes: beside its dump, as with ``capture --run``."""
    return again.captured.directory / PROFILE if again.captured is not None else None


def _with_profile(module: DumpedModule, attempt: Tried, own_profile: Path) -> Tried:
    """Return ``attempt`` with its measured kernels, and the baseline's, of ``own_profile``."""
    place, measurement = _profile_of(attempt.rerun), attempt.measurement
    if place is None or measurement is None or measurement.problem:
        return attempt
    if measurement.not_profiled:
        return replace(attempt, not_profiled=measurement.not_profiled)
    try:
        (dump,) = open_dump(place.parent).modules
        return replace(attempt, kernels=compare_profiles(module, dump, (own_profile, place)))
    except UnusableInput as problem:
        return replace(attempt, not_profiled=str(problem))
