"""Compiles every step of a study for every target, and runs those whose device is present."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path

from fusionscope.capture.capture import PROFILE, capture
from fusionscope.capture.targets import Target, read_program
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.profile import read_profile
from fusionscope.errors import UnusableInput
from fusionscope.explain import ModuleFacts
from fusionscope.explain.explain import explain_module
from fusionscope.facts.result import TimeEstimate
from fusionscope.facts.times import estimate_final
from fusionscope.findings.libraries.facts import Boundary
from fusionscope.findings.measured.find import find_runs
from fusionscope.history.kernels import launches_of
from fusionscope.progress import Progress, each_of, silent
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.plans import Rest, make_plan
from fusionscope.rerun.racing import Race, Racer, race
from fusionscope.rerun.rerun import rerun
from fusionscope.rules.changes import Changes
from fusionscope.study.study_files import Study, StudyStep
from fusionscope.versions.choice import choose_compiler

_APART = "not-fused"
# Operations that are never part of a kernel: a refusal of them says nothing about fusion.
_CONTROL_FLOW = {"call", "conditional", "get-tuple-element", "parameter", "tuple", "while"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The most expensive refused pair, control flow excluded, and its rule.

    producer: its name
    consumer: its name
    rule: id of the rule, or ``unknown``
    title: the reason in words
    bytes: bytes, over all launches, that need not pass through memory if the two were one kernel
    """

    producer: str
    consumer: str
    rule: str
    title: str
    bytes: int


@dataclass(frozen=True, slots=True)
class LongestKernel:
    """The kernel that takes most of the time: its microseconds in the median run.

    name: its name
    time_us: its microseconds in a run
    """

    name: str
    time_us: float


@dataclass(frozen=True, slots=True)
class Profiled:
    """What a profile of one step shows: the microseconds of the median run from its first kernel to
    the end of its last, those in kernels, and the longest kernel.

    time_us: microseconds of the median run, from its first kernel to the end of its last
    kernels_us: of these, in kernels: the sum of the medians
    longest: the kernel with the longest time in a run; null if the profile shows none
    problem: why there is no profile; empty if there is
    """

    time_us: float = 0.0
    kernels_us: float = 0.0
    longest: LongestKernel | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step for one target and size. ``dump`` is the source of its explanation.

    Launches and bytes are those of one run; unless ``runs_known``, ``relation`` says how a run
    compares with them. ``compile_s`` is the time to compile it and dump its stages, in seconds.
    ``estimate`` is that of the GPU's cost model, or None for a CPU. ``race`` is the measurement,
    and ``profiled`` what its kernels took; both are None if nothing ran. ``boundaries`` are library
    calls. ``refusal`` is None if rules were changed. ``problem`` says why figures are missing, and
    is empty otherwise.
    """

    step: str
    size: int
    dump: Path
    kernels: int = 0
    launches: int = 0
    bytes_moved: int = 0
    runs_known: bool = True
    relation: str = ""
    compile_s: float | None = None
    estimate: TimeEstimate | None = None
    refusal: Refusal | None = None
    boundaries: tuple[str, ...] = ()
    race: Race | None = None
    profiled: Profiled | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed relative to the first step. It is a lower bound if the cost model has no time for a
    library call of the first step.

    times: the factor
    is_least: whether the first step has library calls that the cost model does not cover, so it is
        at least this
    """

    times: float
    is_least: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one target and size, in the order of the steps. ``not_run`` says why nothing was
    run, and is empty if it was.
    """

    target: str
    size: int
    rows: tuple[Row, ...]
    not_run: str

    def speed_up(self, row: Row) -> SpeedUp | None:
        """The measured speed-up, or else that of the compiler's cost model, or None."""
        first = self.rows[0]
        if row.race is not None and first.race is not None:
            return SpeedUp(1 / row.race.ratio.value)
        if row is first or row.estimate is None or first.estimate is None:
            return SpeedUp(1.0) if row is first and row.estimate is not None else None
        if row.estimate.floor_launches:
            return None
        times = first.estimate.microseconds / row.estimate.microseconds
        return SpeedUp(times, bool(first.estimate.floor_launches))


@dataclass(frozen=True, slots=True)
class StudyResult:
    study: Study
    tables: tuple[Table, ...]


def run_study(
    study: Study,
    targets: Sequence[Target],
    sizes: Sequence[int],
    output: Path,
    *,
    python: str = sys.executable,
    limit_s: float = 600.0,
    seconds: float = 2.0,
    progress: Progress = silent,
) -> StudyResult:
    """Run a study. Dumps go to ``output``, a folder each. Steps that can run here are timed for
    ``seconds`` each, all steps of a table in turns. Raises ``UnusableInput`` if nothing can be
    compiled.
    """
    work = [(target, size, step) for target in targets for size in sizes for step in study.steps]
    rows: dict[tuple[str, int], list[_Made]] = {}
    for (target, size, step), _ in each_of(work, _words, progress):
        rows_of_target = rows.setdefault((target.name, size), [])
        folder = output / target.name / f"{size}" / step.name
        try:
            rows_of_target.append(
                _make(study, step, size, target, folder, rows_of_target, python, limit_s)
            )
        except UnusableInput as error:
            rows_of_target.append(
                _Made(Row(step=step.name, size=size, dump=folder, problem=str(error)))
            )
    tables = []
    for target in targets:
        for size in sizes:
            progress(f"comparing for {target.name}, size {size}")
            tables.append(_table(target, size, rows[target.name, size], seconds, python, limit_s))
    if all(row.problem and not row.launches for table in tables for row in table.rows):
        raise UnusableInput(tables[0].rows[0].problem, file=str(study.folder))
    return StudyResult(study, tuple(tables))


def _words(work: tuple[Target, int, StudyStep]) -> str:
    target, size, step = work
    return f"compiling {step.name} for {target.name}, size {size}"


@dataclass(frozen=True, slots=True)
class _Made:
    """A row, and its source: the module of the dump, and the injected plan, if any."""

    row: Row
    module: DumpedModule | None = None
    injection: Injection | None = None


def _make(
    study: Study,
    step: StudyStep,
    size: int,
    target: Target,
    folder: Path,
    before: Sequence[_Made],
    python: str,
    limit_s: float,
) -> _Made:
    injection: Injection | None = None
    if step.of is not None:
        source = next(
            earlier_row for earlier_row in before if earlier_row.row.step == step.of
        ).module
        if source is None:
            raise UnusableInput(f"{step.name} is based on {step.of}, which was not compiled")
        plan = make_plan(source, changes_for(step, source), Rest.RULES)
        again = rerun(source, plan, folder, python=python, limit_s=limit_s)
        captured, injection, problem = again.captured, again.injection, again.problem
        if captured is None:
            raise UnusableInput(problem)
    else:
        shapes = [shape.replace("{n}", str(size)) for shape in step.arguments]
        program = read_program(str(study.folder / step.program), shapes)
        captured = capture(program, target, folder, python=python, limit_s=limit_s)
        problem = captured.problem
    module = _largest(folder)
    facts = explain_module(module)
    row = Row(
        step=step.name,
        size=size,
        dump=folder,
        kernels=len(facts.kernels),
        launches=facts.summary.launches,
        bytes_moved=facts.summary.bytes_moved,
        runs_known=all(kernel.runs_known for kernel in facts.kernels),
        relation=facts.relation,
        compile_s=captured.compile_s,
        estimate=estimate_final(module),
        refusal=_costliest(facts) if step.of is None else None,  # changed rules refuse no pair
        boundaries=tuple(
            f"{earlier_row.library} {earlier_row.computes}"
            for earlier_row in facts.find_all(Boundary)
        ),
        problem=problem,
    )
    return _Made(row, module, injection)


def changes_for(step: StudyStep, source: DumpedModule) -> Changes:
    """Return the changes of a step as far as the compiler of ``source`` has their rules and passes:
    one file is for several devices. Raises ``UnusableInput`` if it has none of them.
    """
    compiler = choose_compiler(source).compiler
    changes = step.changes.within(compiler)
    if not changes:
        raise UnusableInput(
            f"{step.name}: the compiler for a {compiler.backend.upper()} has none of these: "
            f"{step.changes}"
        )
    return changes


def _largest(folder: Path) -> DumpedModule:
    """Return the program's own module, if the compiler made small ones beside it."""
    modules = [module for module in open_dump(folder).modules if module.final is not None]
    if not modules:
        raise UnusableInput("the compiler did not finish", file=str(folder))
    return max(modules, key=lambda module: len(module.read(module.stages[0]).bodies))


def _costliest(facts: ModuleFacts) -> Refusal | None:
    refused = [
        pair
        for pair in facts.pairs
        if pair.outcome == _APART
        and not _CONTROL_FLOW & {pair.producer.opcode, pair.consumer.opcode}
    ]
    if not refused:
        return None
    worst = max(refused, key=lambda pair: pair.bytes_saved)
    return Refusal(
        worst.producer.name,
        worst.consumer.name,
        worst.reason or "",
        worst.title or "",
        worst.bytes_saved,
    )


def _table(
    target: Target,
    size: int,
    made_rows: Sequence[_Made],
    seconds: float,
    python: str,
    limit_s: float,
) -> Table:
    rows = [made_row.row for made_row in made_rows]
    if not target.is_here:
        return Table(target.name, size, tuple(rows), "the device is not present")
    racers = {
        number: Racer(
            made_row.module, made_row.injection or Injection(), made_row.row.dump / PROFILE
        )
        for number, made_row in enumerate(made_rows)
        if made_row.module is not None and not made_row.row.problem
    }
    try:
        races = race(list(racers.values()), seconds=seconds, python=python, limit_s=limit_s)
    except UnusableInput as error:
        return Table(target.name, size, tuple(rows), str(error))
    for (number, racer), race_found in zip(racers.items(), races, strict=True):
        rows[number] = replace(rows[number], race=race_found, profiled=_profiled(racer, race_found))
    return Table(target.name, size, tuple(rows), "")


def _profiled(racer: Racer, measured_race: Race) -> Profiled:
    if racer.profile is None or measured_race.not_profiled:
        return Profiled(problem=measured_race.not_profiled)
    module = racer.module
    try:
        runs = find_runs(module, read_profile(racer.profile))
    except UnusableInput as problem:
        return Profiled(problem=str(problem))
    final = module.read(module.last)
    times = runs.times_of({kernel.name for kernel in launches_of(final, module.backend)})
    longest = max(times.items(), key=lambda measured_race: measured_race[1], default=None)
    return Profiled(
        runs.time_us, fsum(times.values()), LongestKernel(*longest) if longest else None
    )
