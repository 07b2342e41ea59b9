"""Checks dumps against expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusionscope.check.baseline import AsBefore, Baseline
from fusionscope.check.expectations import Expectation, Violation
from fusionscope.explain.result import Explanation, ModuleFacts
from fusionscope.verify.agreement import RulesUsed


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one expectation over all dumps. ``modules`` are those that it applies to,
    ``notes`` are changes that are neither better nor worse.
    """

    expectation: Expectation
    modules: tuple[str, ...]
    violations: tuple[Violation, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        return not self.violations


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. ``outcomes`` are in the order of the file, then those of the baseline.
    ``dumps`` are the checked paths, ``rules`` those that gave reasons, by dump and module.
    """

    dumps: tuple[str, ...]
    outcomes: tuple[Verdict, ...]
    problems: tuple[str, ...]
    rules: tuple[tuple[str, str, RulesUsed], ...] = ()

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(each for outcome in self.outcomes for each in outcome.violations)

    @property
    def is_met(self) -> bool:
        return not self.violations


def check(
    explanations: Sequence[Explanation],
    expectations: Sequence[Expectation],
    baseline: Baseline | None = None,
) -> Checked:
    """Check each expectation against each module that it applies to, and compare each module with
    the baseline. An expectation that applies to no module fails.
    """
    outcomes = [_ask(each, explanations) for each in expectations]
    if baseline is not None:
        outcomes += [_hold(each, facts) for each, facts in baseline.compare(explanations)]
    return Checked(
        tuple(each.path for each in explanations),
        tuple(outcomes),
        tuple(problem for each in explanations for problem in each.problems),
        tuple(
            (each.path, facts.name, facts.rules)
            for each in explanations
            for facts in each.modules
            if facts.rules is not None
        ),
    )


def _hold(expectation: AsBefore, facts: ModuleFacts | None) -> Verdict:
    if facts is None:
        return Verdict(expectation, (), (expectation.missing(),))
    violations, notes = expectation.check(facts), expectation.notes(facts)
    return Verdict(expectation, (facts.name,), tuple(violations), tuple(notes))


def _ask(expectation: Expectation, explanations: Sequence[Explanation]) -> Verdict:
    modules = [
        facts
        for each in explanations
        for facts in each.modules
        if expectation.where.has_module(facts)
    ]
    violations = tuple(v for facts in modules for v in expectation.check(facts))
    if not modules:
        violations = tuple(_nowhere(expectation, explanations))
    notes = tuple(f"{facts.name}: {note}" for facts in modules for note in expectation.notes(facts))
    return Verdict(expectation, tuple(facts.name for facts in modules), violations, notes)


def _nowhere(expectation: Expectation, explanations: Sequence[Explanation]) -> Iterator[Violation]:
    names = sorted({facts.name for each in explanations for facts in each.modules})
    there = f", there are {', '.join(names[:8])}" if names else ""
    yield Violation(
        expectation=expectation, module="", what=f"no module matches {expectation.where}{there}"
    )
