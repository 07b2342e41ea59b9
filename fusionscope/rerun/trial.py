"""Compiles several variants of one program and, if its device is present, runs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusionscope.dump import DumpedModule
from fusionscope.explain.changed_passes import ChangedPasses
from fusionscope.explain.replayed import find_rules
from fusionscope.progress import Progress, each_of, silent
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import Plan, Rest, make_plan
from fusionscope.rerun.programs import disabling
from fusionscope.rerun.rerun import Rerun, rerun
from fusionscope.rerun.running import CannotRun, Measurement, Numbers, measure, why_not_run
from fusionscope.rules.changes import Changes
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.runs import find_runs


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant. ``name`` is that of its dump. ``plan`` is None if only ``flags`` of XLA differ."""

    name: str
    plan: Plan | None
    flags: tuple[str, ...] = ()


def make_variant(
    module: DumpedModule, name: str, changes: Changes, rest: Rest, flags: tuple[str, ...]
) -> Variant:
    """Return a variant with a plan, or with flags alone if it only disables passes and what follows
    them cannot be replayed. Raises ``UnusableInput`` like ``make_plan``.
    """
    passes = {run.pass_name for run in find_runs(module)}
    left_out = changes.disabled
    if left_out and changes == Changes(disabled=left_out) and passes.issuperset(left_out):
        replayed = ChangedPasses(module, changes)
        if replayed.is_late or replayed.obstacle:
            return Variant(name, None, (*disabling(module, *left_out), *flags))
    return Variant(name, make_plan(module, changes, rest), flags)


@dataclass(frozen=True, slots=True)
class Tried:
    """One tried variant. ``measurement`` is None if nothing was run."""

    name: str
    rerun: Rerun
    measurement: Measurement | None

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
    python: str = sys.executable,
    limit_s: float = 600.0,
    progress: Progress = silent,
) -> Trial:
    """Dump each of ``variants`` into ``directory``, or into a folder of it if there are several.

    If ``runs`` is set, they are run beside ``baseline`` on ``inputs`` (an .npz) or random ones, and
    timed for ``seconds``. Without a baseline, they run beside the compiler's own choice, which may
    differ from the kernels of the dump. Raises ``UnusableInput`` if the dump lacks the program or
    its device, there is no compiler, or the inputs do not fit.
    """
    made = [
        rerun(
            module,
            each.plan,
            directory if len(variants) == 1 else directory / each.name,
            flags=each.flags,
            python=python,
            limit_s=limit_s,
        )
        for each, _ in each_of(variants, lambda each: f"compiling {each.name}", progress)
    ]
    not_run = why_not_run(module) if runs else ""
    measured: list[Measurement | None] = [None] * len(made)
    if runs and not not_run:
        progress("running")
        injection = Injection()
        if baseline is not None:
            injection = inject(module, baseline, python=python, limit_s=limit_s)
        try:
            measured[:] = measure(
                module,
                injection,
                [each.injection for each in made],
                inputs=inputs,
                seed=seed,
                seconds=seconds,
                python=python,
                limit_s=limit_s,
            )
        except CannotRun as problem:
            not_run = problem.reason
    tried = (
        Tried(variant.name, again, measurement)
        for variant, again, measurement in zip(variants, made, measured, strict=True)
    )
    rules = find_rules(module) if baseline is not None else None
    return Trial(module.name, tuple(tried), not_run, rules)
