"""Tries changes with the compiler itself, and times them if the device is present."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.advise.candidates import Candidate
from fusionscope.advise.library_work import changes_code
from fusionscope.advise.recipes.trying import Compilation
from fusionscope.advise.removed import removed_movements
from fusionscope.advise.settled import fused_by_plan, settled_pairs
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import count_figures
from fusionscope.hlo import Module
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import Plan, Rest, make_plan
from fusionscope.rerun.programs import find_target
from fusionscope.rerun.rerun import Rerun, rerun
from fusionscope.rerun.running import Measurement, Numbers, Timing, measure, why_not_run
from fusionscope.rerun.trial import make_variant
from fusionscope.rules.changes import NO_CHANGES
from fusionscope.versions.context import read_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The result of compiling a module with a change. ``pairs`` are the producers and consumers
    before fusion, by name, that are fused then, or whose value is no longer written, ``removes``
    the kernels that only move data and are gone. ``changes_code`` is whether other code computes
    what the library of a CPU computes now. ``timing`` is None if nothing was timed.

    ``problem`` says why there is no result, or no correct one; it is empty otherwise.
    """

    candidate: Candidate
    figures: Figures | None = None
    pairs: frozenset[tuple[str, str]] = frozenset()
    removes: tuple[str, ...] = ()
    changes_code: bool = False
    timing: Timing | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The program compiled again without changes. ``pairs`` are the producers and consumers that
    are fused, or whose value seems no longer written, although nothing changed.

    ``planned`` are the figures with a plan without changes, with which a change of rules is
    compared: a CPU compiler may copy more around the kernels of a plan.
    """

    figures: Figures
    pairs: frozenset[tuple[str, str]]
    planned: Figures

    def beside(self, candidate: Candidate) -> Figures:
        """Return the figures with which a change is compared."""
        return self.figures if candidate.flags else self.planned


def compile_unchanged(module: DumpedModule, compilation: Compilation) -> Unchanged:
    """Compile the program of ``module`` again without changes, and with a plan without changes.

    Raises ``UnusableInput`` if that is not possible here, or the figures differ from those of the
    dump.
    """
    with TemporaryDirectory() as scratch:
        again = _rerun(module, None, (), Path(scratch) / "unchanged", compilation)
        if again.variant is None:
            raise UnusableInput(f"{module.name}: it does not compile here: {again.problem}")
        if again.variant != again.baseline:
            old, new = again.baseline, again.variant
            raise UnusableInput(
                f"{module.name}: compiled here it makes {new.launches:,} launches and moves "
                f"{new.bytes_moved:,} bytes, in the dump {old.launches:,} and {old.bytes_moved:,}"
            )
        assert module.final is not None and again.captured is not None
        (dump,) = open_dump(again.captured.directory).modules
        pairs = settled_pairs(module, dump)
        figures = planned = _figures(module, module.read(module.final))
        if module.backend == "cpu":
            planned = _planned(module, Path(scratch) / "planned", compilation) or figures
    return Unchanged(figures, pairs, planned)


def _planned(module: DumpedModule, directory: Path, compilation: Compilation) -> Figures | None:
    """Return the figures with a plan without changes; None if there is no plan for the module, and
    so none with changes either.
    """
    try:
        again = _rerun(module, make_plan(module, NO_CHANGES), (), directory, compilation)
    except UnusableInput:
        return None
    if again.captured is None or again.problem:
        return None
    (dump,) = open_dump(again.captured.directory).modules
    assert dump.final is not None
    return _figures(module, dump.read(dump.final))


def compile_each(
    module: DumpedModule,
    candidates: Sequence[Candidate],
    compilation: Compilation,
) -> list[Compiled]:
    """Compile the program of ``module`` with each of ``candidates``.

    If its device is present, each is timed beside the unchanged program. Raises ``UnusableInput``
    if the program is not in the dump, or the device is unknown.
    """
    compiled: list[Compiled] = []
    injections: list[Injection] = []
    with TemporaryDirectory() as scratch:
        for number, candidate in enumerate(candidates):
            directory = Path(scratch) / str(number)
            try:
                again = _compile(module, candidate, directory, compilation)
            except UnusableInput as error:
                compiled.append(Compiled(candidate=candidate, problem=str(error)))
                injections.append(Injection(problem=str(error)))
                continue
            compiled.append(_result(module, candidate, again))
            injections.append(again.injection)
    if not why_not_run(module):
        compiled = _timed(module, compiled, injections, compilation)
    return compiled


def _compile(
    module: DumpedModule, candidate: Candidate, directory: Path, compilation: Compilation
) -> Rerun:
    if candidate.flags:
        return _rerun(module, None, candidate.change.split(), directory, compilation)
    variant = make_variant(module, "changed", candidate.changes, Rest.RULES, ())
    return _rerun(module, variant.plan, variant.flags, directory, compilation)


def _rerun(
    module: DumpedModule,
    plan: Plan | None,
    flags: Sequence[str],
    directory: Path,
    compilation: Compilation,
) -> Rerun:
    python, limit_s = compilation.python, compilation.limit_s
    return rerun(module, plan, directory, flags=flags, python=python, limit_s=limit_s)


def _result(module: DumpedModule, candidate: Candidate, again: Rerun) -> Compiled:
    if again.variant is None or again.captured is None:
        problem = again.problem or "the compiler did not finish"
        return Compiled(candidate=candidate, problem=problem)
    # The tools that generate code for an absent device may be missing.
    if again.problem and find_target(module).is_here:
        return Compiled(candidate=candidate, problem=again.problem)
    (dump,) = open_dump(again.captured.directory).modules
    assert dump.final is not None and module.final is not None
    before, after = module.read(module.final), dump.read(dump.final)
    return Compiled(
        candidate=candidate,
        figures=_figures(module, after),
        removes=removed_movements(before, before, after, module.backend),
        changes_code=changes_code(before, after, module.backend),
        pairs=(settled_pairs if candidate.flags else fused_by_plan)(module, dump),
    )


def _figures(module: DumpedModule, final: Module) -> Figures:
    return count_figures(final, module.backend, read_target(module))


def _timed(
    module: DumpedModule,
    compiled: Sequence[Compiled],
    injections: Sequence[Injection],
    compilation: Compilation,
) -> list[Compiled]:
    """Compare flags with the program as the compiler makes it, rules with an unchanged plan."""
    python, limit_s = compilation.python, compilation.limit_s
    measured: dict[str, Measurement] = {}
    for has_plan in (False, True):
        pending = [
            (attempt.candidate.change, injection)
            for attempt, injection in zip(compiled, injections, strict=True)
            if bool(attempt.candidate.flags) is not has_plan
        ]
        if not pending:
            continue
        baseline = Injection()
        if has_plan:
            baseline = inject(module, make_plan(module, NO_CHANGES), python=python, limit_s=limit_s)
        measurements = measure(
            module,
            baseline,
            [injection for _, injection in pending],
            seconds=compilation.seconds * len(pending),
            python=python,
            limit_s=limit_s,
        )
        measured |= {
            change: attempt for (change, _), attempt in zip(pending, measurements, strict=True)
        }
    timed = []
    for attempt in compiled:
        measurement = measured[attempt.candidate.change]
        problem = attempt.problem or measurement.problem
        if measurement.numbers is Numbers.DIFFERENT:
            problem = "the results differ"
        timed.append(replace(attempt, timing=measurement.timing, problem=problem))
    return timed
