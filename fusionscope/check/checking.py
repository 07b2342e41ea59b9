"""Checks dumps against expectations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

from fusionscope.check.allowances import Allowance
from fusionscope.check.as_before import AsBefore
from fusionscope.check.baseline import Baseline
from fusionscope.check.expectation import Expectation, Violation
from fusionscope.check.matrix import NotCompiled
from fusionscope.check.record import ModuleRecord, record_of
from fusionscope.check.subject import Cell, Subject
from fusionscope.errors import UnusableInput
from fusionscope.findings.advisories.facts import Advisory
from fusionscope.verify.agreement import RulesUsed


class Compiles(Expectation):
    """The program compiles for its target. ``value`` names both."""

    __slots__ = ()
    key: ClassVar = "compiles"

    def __str__(self) -> str:
        return f"{self.value} compiles"

    @classmethod
    def expected(cls, value: Any) -> str:
        return "" if isinstance(value, str) else "a program on a target"

    def check(self, subject: Subject) -> Iterator[Violation]:
        yield from ()


class Allowed(NamedTuple):
    """A violation, and the exception that allows it."""

    violation: Violation
    allowance: Allowance


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one expectation over all dumps. ``modules`` are those that it applies to,
    ``notes`` are changes that are neither better nor worse, ``seconds`` the time that it took.
    """

    expectation: Expectation
    modules: tuple[str, ...]
    violations: tuple[Violation, ...]
    notes: tuple[str, ...] = ()
    allowed: tuple[Allowed, ...] = ()
    seconds: float = 0.0

    @property
    def is_met(self) -> bool:
        return not self.violations


@dataclass(frozen=True, slots=True)
class Compared:
    """A module and its records before and now; None if it did not exist, or does not exist now.
    ``program`` and ``target`` are empty outside of a matrix.
    """

    name: str
    program: str
    target: str
    before: ModuleRecord | None
    now: ModuleRecord | None


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. ``outcomes`` are in the order of the file, then those of the baseline.
    ``dumps`` are the checked paths, or names in a matrix, ``rules`` those that gave reasons, by
    dump and module. ``compared`` are all modules, ``origin`` is what they are compared with, empty
    if with nothing. ``matrix`` are programs and targets, also those that did not compile.
    ``seconds`` is the time to compile and explain all dumps.
    """

    dumps: tuple[str, ...]
    outcomes: tuple[Verdict, ...]
    problems: tuple[str, ...]
    rules: tuple[tuple[str, str, RulesUsed], ...] = ()
    compared: tuple[Compared, ...] = ()
    origin: str = ""
    matrix: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for outcome in self.outcomes for violation in outcome.violations)

    @property
    def is_met(self) -> bool:
        return not self.violations


def check(
    cells: Sequence[Cell],
    expectations: Sequence[Expectation],
    baseline: Baseline | None = None,
    *,
    allowances: Sequence[Allowance] = (),
    failures: Sequence[NotCompiled] = (),
    is_partial: bool = False,
    today: date | None = None,
) -> Checked:
    """Check each expectation against each module that it applies to, and compare each module with
    the baseline. An expectation that applies to no module fails. ``allowances`` hold until their
    day is before ``today``. ``failures`` are cells of a matrix that have no dump. If other modules
    were left out, the check ``is_partial``: expectations and allowances may be about those. Raises
    ``UnusableInput`` if an expectation compares modules with what they were, and there is no
    baseline.
    """
    exceptions = _Exceptions(allowances, today or date.today())
    absent = {(failure.program, failure.target) for failure in failures}
    compared = [
        (module_record, subject)
        for module_record, subject in (baseline.compare(cells) if baseline is not None else ())
        if subject is not None
        or (module_record.module.program, module_record.module.target) not in absent
    ]
    before = {
        id(subject.facts): module_record.value
        for module_record, subject in compared
        if subject is not None
    }
    subjects = [
        replace(subject, before=before.get(id(subject.facts)))
        for cell in cells
        for subject in cell.subjects
    ]
    for expectation in expectations:
        if expectation.compares and baseline is None:
            raise UnusableInput(
                f"{expectation} needs something to compare with",
                hint="--baseline FILE or --against REF",
            )
    matrix: list[Cell | NotCompiled] = [*cells, *failures]
    outcomes = [_fail(failure) for failure in failures]
    outcomes += [
        _ask(expectation, subjects, exceptions)
        for expectation in expectations
        if not (
            _is_elsewhere(expectation, subjects)
            and (is_partial or _is_about(expectation, failures))
        )
    ]
    outcomes += [_hold(module_record, subject, exceptions) for module_record, subject in compared]
    return Checked(
        tuple(map(str, cells)),
        tuple(outcomes),
        (
            *(problem for cell in cells for problem in cell.explanation.problems),
            *(() if is_partial or failures else exceptions.problems()),
            *_wrong_results(subjects),
        ),
        tuple(
            (str(subject.cell), subject.facts.name, subject.facts.rules)
            for subject in subjects
            if subject.facts.rules is not None
        ),
        tuple(_compared(*module_record) for module_record in compared)
        or tuple(_compared(None, subject) for subject in subjects),
        baseline.origin.name if baseline is not None else "",
        tuple(
            (module_record.program, module_record.target)
            for module_record in matrix
            if module_record.program
        ),
        sum(cell.seconds for cell in cells),
    )


class _Exceptions:
    """Allowances on one day, and which of them were needed."""

    def __init__(self, allowances: Sequence[Allowance], today: date) -> None:
        self._allowances = allowances
        self._today = today
        self._needed: set[int] = set()

    def split(
        self, violations: Sequence[Violation], subject: Subject
    ) -> tuple[list[Violation], list[Allowed]]:
        """Return the violations that remain, and those that are allowed."""
        remaining, allowed = [], []
        for violation in violations:
            matches = [
                (number, allowance)
                for number, allowance in enumerate(self._allowances)
                if allowance.covers(violation) and allowance.has_place(violation, subject)
            ]
            self._needed |= {number for number, _ in matches}
            current = [exception for _, exception in matches if exception.until >= self._today]
            if current:
                allowed.append(Allowed(violation, current[0]))
                continue
            if matches:
                ended = max(exception.until for _, exception in matches)
                what = f"{violation.what}; this was allowed until {ended}"
                violation = replace(violation, what=what)
            remaining.append(violation)
        return remaining, allowed

    def problems(self) -> Iterator[str]:
        """Yield a line for each that allows nothing."""
        for number, allowance in enumerate(self._allowances):
            if number not in self._needed:
                place = f"{allowance.place}: " if allowance.place else ""
                yield f"{place}nothing needs the exception {allowance} any more, remove it"


def _wrong_results(subjects: Sequence[Subject]) -> Iterator[str]:
    """Yield a line for each fault of the compiler that a module shows."""
    for subject in subjects:
        for fault in subject.facts.find_all(Advisory):
            if fault.is_certain:
                yield f"{subject}: {fault.id}: {fault.title}, in {', '.join(fault.instructions)}"


def _compared(expectation: AsBefore | None, subject: Subject | None) -> Compared:
    before = expectation.value if expectation is not None else None
    if subject is None:
        assert expectation is not None
        key = expectation.module
        return Compared(key.name, key.program, key.target, before, None)
    cell, now = subject.cell, record_of(subject.facts)
    return Compared(subject.facts.name, cell.program, cell.target, before, now)


def _fail(failure: NotCompiled) -> Verdict:
    expectation = Compiles(f"{failure.program} on {failure.target}")
    problem = failure.problem
    source = f"{problem.file}:{problem.line}" if problem.file and problem.line else None
    what = f"{problem.problem}; {problem.hint}" if problem.hint else problem.problem
    violation = Violation(
        expectation=expectation, module=expectation.value, what=what, source=source
    )
    return Verdict(expectation, (), (violation,))


def _is_elsewhere(expectation: Expectation, subjects: Sequence[Subject]) -> bool:
    """Return whether an expectation is about none of these modules."""
    where = expectation.where
    return not any(
        where.has_module(subject.facts, subject.cell.program, subject.cell.target)
        for subject in subjects
    )


def _is_about(expectation: Expectation, failures: Sequence[NotCompiled]) -> bool:
    """Return whether an expectation may be about what did not compile."""
    where = expectation.where
    return any(
        fnmatchcase(failure.program, where.program or "*")
        and fnmatchcase(failure.target, where.target or "*")
        for failure in failures
    )


def _hold(expectation: AsBefore, subject: Subject | None, exceptions: _Exceptions) -> Verdict:
    if subject is None:
        notes = tuple(expectation.missing_notes())
        return Verdict(expectation, (), tuple(expectation.missing()), notes)
    begin = time.perf_counter()
    violations, allowed = exceptions.split(list(expectation.check(subject)), subject)
    return Verdict(
        expectation,
        (str(subject),),
        tuple(violations),
        tuple(expectation.notes(subject)),
        tuple(allowed),
        subject.cell.seconds + time.perf_counter() - begin,
    )


def _ask(expectation: Expectation, subjects: Sequence[Subject], exceptions: _Exceptions) -> Verdict:
    begin = time.perf_counter()
    where = expectation.where
    selected = [
        subject
        for subject in subjects
        if where.has_module(subject.facts, subject.cell.program, subject.cell.target)
    ]
    violations: list[Violation] = []
    allowed: list[Allowed] = []
    for subject in selected:
        narrowed = expectation
        if where.function is not None:
            narrowed = replace(expectation, where=where.within(subject.stacks))
        still, excepted = exceptions.split(list(narrowed.check(subject)), subject)
        violations += still
        allowed += excepted
    if not selected:
        violations = list(_nowhere(expectation, subjects))
    elif all(why := [expectation.unknown(subject_asked) for subject_asked in selected]):
        violations.append(expectation.violation(selected[0], why[0]))
    return Verdict(
        expectation,
        tuple(map(str, selected)),
        tuple(violations),
        tuple(
            f"{subject_asked}: {note}"
            for subject_asked in selected
            for note in expectation.notes(subject_asked)
        ),
        tuple(allowed),
        time.perf_counter() - begin,
    )


def _nowhere(expectation: Expectation, subjects: Sequence[Subject]) -> Iterator[Violation]:
    names = sorted(set(map(str, subjects)))
    there = f", there are {', '.join(names[:8])}" if names else ""
    yield Violation(
        expectation=expectation, module="", what=f"no module matches {expectation.where}{there}"
    )
