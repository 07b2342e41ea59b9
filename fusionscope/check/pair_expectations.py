"""Expectations of pairs, and of operations that share a kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, ClassVar

from fusionscope.check.expectation import (
    Expectation,
    Violation,
    arrow,
    expected_list,
    expected_pair,
    fits,
    is_pair,
)
from fusionscope.check.subject import Subject
from fusionscope.check.where import Where
from fusionscope.facts.result import Operation, PairFacts
from fusionscope.history.outcomes import TOGETHER, Outcome

_MOST = 4  # names per line


class _PairExpectation(Expectation):
    """An expectation for each pair that ``value`` names, ``PRODUCER -> CONSUMER``: names, opcodes
    or op names.
    """

    __slots__ = ()

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_pair(value)

    def check(self, subject: Subject) -> Iterator[Violation]:
        named_pairs = [
            pair
            for pair in subject.facts.pairs
            if pair.outcome != Outcome.GONE and is_pair(pair, self.value)
        ]
        matches = [pair for pair in named_pairs if self.where.has_pair(pair)]
        if not matches:
            what = f"no pair before fusion matches {self.value}"
            yield self.violation(subject, f"{what}{self._nearest(subject, named_pairs)}")
        for pair in matches:
            if what := self.problem(pair):
                yield self.about_pair(subject, pair, what)

    def _nearest(self, subject: Subject, named_pairs: Sequence[PairFacts]) -> str:
        """Return where the nearest such pair is, or what is where it is expected."""
        if named_pairs and self.where.is_part:
            return f" where {self.where}; {nearest_place(named_pairs, self.where)}"
        here = [pair for pair in subject.facts.pairs if self.where.has_pair(pair)]
        close = get_close_matches(
            _opcodes_of(self.value), {f"{p.producer.opcode} -> {p.consumer.opcode}" for p in here}
        )
        return f"; there {'are' if len(close) > 1 else 'is'} {', '.join(close)}" if close else ""

    @abstractmethod
    def problem(self, pair: PairFacts) -> str:
        """Return the deviation, or "" if the pair is as expected."""


class Fused(_PairExpectation):
    __slots__ = ()
    key: ClassVar = "fused"

    def problem(self, pair: PairFacts) -> str:
        return "" if pair.outcome in TOGETHER else "is not fused"


class NeverFused(_PairExpectation):
    __slots__ = ()
    key: ClassVar = "never_fused"

    def problem(self, pair: PairFacts) -> str:
        return f"is {pair.outcome}, in {pair.kernel}" if pair.outcome in TOGETHER else ""


class NotDuplicated(_PairExpectation):
    __slots__ = ()
    key: ClassVar = "not_duplicated"

    def problem(self, pair: PairFacts) -> str:
        is_so = pair.outcome == Outcome.DUPLICATED
        return "is duplicated: computed more than once, or also written" if is_so else ""


# An operation, the other operations of its kernels, and the patterns or names
# that should be among them.
_Apart = tuple[Operation, set[str], list[str]]


class OneKernel(Expectation):
    """Each operation that matches the first pattern shares a kernel with one for each other
    pattern. With a single pattern, all operations that match it share one kernel.
    """

    __slots__ = ()
    key: ClassVar = "one_kernel"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_list(value) or ("" if value else "a list of operations")

    def check(self, subject: Subject) -> Iterator[Violation]:
        facts = subject.facts
        pairs = [pair for pair in facts.pairs if self.where.has_pair(pair)]
        operations = {end.name: end for end in _ends(pairs) if self.where.has_operation(end)}
        kernels: dict[str, set[str]] = defaultdict(set)
        for pair in facts.pairs:
            if pair.kernel is not None:
                kernels[pair.kernel] |= {pair.producer.name, pair.consumer.name}
        for pattern in self.value:
            if not any(fits(operation, pattern) for operation in operations.values()):
                what = f"no operation before fusion matches {pattern}"
                yield self.violation(subject, f"{what}{self._nearest(subject, pattern)}")
                return
        apart = self._divided if len(self.value) == 1 else self._without_others
        for start, reached, absent in apart(operations, [*kernels.values()]):
            yield self._apart(subject, start, pairs, reached, absent)

    def _nearest(self, subject: Subject, pattern: str) -> str:
        """Return where the nearest operation is that matches."""
        if not self.where.is_part:
            return ""
        ends = {end.name: end for end in _ends(subject.facts.pairs) if fits(end, pattern)}
        return f" where {self.where}; {nearest_place(ends.values(), self.where)}" if ends else ""

    def _divided(
        self, operations: Mapping[str, Operation], kernels: Sequence[set[str]]
    ) -> Iterator[_Apart]:
        """Yield all operations that match the only pattern, if no kernel has them all."""
        starts = {name for name, operation in operations.items() if fits(operation, self.value[0])}
        if not any(starts <= names for names in kernels):
            start = operations[min(starts)]
            reached = set().union(*(names for names in kernels if start.name in names))
            yield start, reached, sorted(starts - reached - {start.name})

    def _without_others(
        self, operations: Mapping[str, Operation], kernels: Sequence[set[str]]
    ) -> Iterator[_Apart]:
        """Yield operations that match the first pattern, and share no kernel with the others."""
        first, *other_patterns = self.value
        for start in operations.values():
            if not fits(start, first):
                continue
            together = [names & operations.keys() for names in kernels if start.name in names]
            if not any(
                all(
                    any(fits(operations[name], pattern) for name in names)
                    for pattern in other_patterns
                )
                for names in together
            ):
                yield start, set().union(*together), other_patterns

    def _apart(
        self,
        subject: Subject,
        start: Operation,
        pairs: Iterable[PairFacts],
        reached: set[str],
        other_patterns: list[str],
    ) -> Violation:
        """Return a violation with the pair at which the kernel of ``start`` ends, if one leads to a
        missing operation.
        """
        inside = reached | {start.name}
        refused = [
            pair
            for pair in pairs
            if pair.outcome == Outcome.NOT_FUSED
            and (pair.producer.name in inside) != (pair.consumer.name in inside)
        ]
        pairs_refused = [
            pair
            for pair in refused
            if any(
                fits(end, pattern)
                for end in (pair.producer, pair.consumer)
                for pattern in other_patterns
            )
        ]
        what = f"shares no kernel with {' and '.join(other_patterns[:_MOST])}"
        if len(other_patterns) > _MOST:
            what += f" and {len(other_patterns) - _MOST} more"
        for pair in (pairs_refused or refused)[:1]:
            violation = self.about_pair(
                subject, pair, f"{what}: {arrow(pair)} is not fused", start.name
            )
            return replace(violation, source=start.source)
        return self.violation(subject, what, about=start.name, source=start.source)


class NotRefused(Expectation):
    """No pair is refused for these reasons, ids of rules."""

    __slots__ = ()
    key: ClassVar = "not_refused"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_list(value)

    def check(self, subject: Subject) -> Iterator[Violation]:
        pairs = [pair for pair in subject.facts.pairs if self.where.has_pair(pair)]
        if not pairs and self.where.is_part:
            yield self.violation(subject, f"no pair matches {self.where}")
        for pair in pairs:
            if pair.reason in self.value:
                yield self.about_pair(subject, pair, "is refused")


def _ends(pairs: Iterable[PairFacts]) -> Iterator[Operation]:
    for pair in pairs:
        if pair.outcome != Outcome.GONE:
            yield pair.producer
            yield pair.consumer


def _opcodes_of(pattern: str) -> str:
    return " -> ".join(end.strip().lstrip("%") for end in pattern.split("->"))


def nearest_place(candidates: Iterable[PairFacts | Operation], where: Where) -> str:
    """Return which of the pairs or operations is nearest to a selection that has none of them."""

    def place(candidate: PairFacts | Operation) -> str | None:
        if isinstance(candidate, Operation):
            return candidate.source
        return candidate.consumer.source or candidate.producer.source

    nearest = min(
        candidates,
        key=lambda candidate: (
            where.distance(place(candidate) or "") if where.source else (False, 0)
        ),
    )
    name = nearest.name if isinstance(nearest, Operation) else arrow(nearest)
    if where.source is None or place(nearest) is None:
        operation = nearest if isinstance(nearest, Operation) else nearest.consumer
        return f"{name} is {operation.op_name or 'elsewhere'}"
    return f"{name} is now at {where.shortened(place(nearest) or '')}"
