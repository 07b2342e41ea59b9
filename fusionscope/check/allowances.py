"""Exceptions: deviations that are allowed until a date, one small class for each kind."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

from fusionscope.check.expectation import Violation, expected_pair, is_pair
from fusionscope.check.growth import expected_growth, is_within
from fusionscope.check.subject import Subject
from fusionscope.check.where import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """An exception. It holds up to and including the day ``until``; ``why`` is the user's own text,
    ``place`` its file and line.
    """

    key: ClassVar[str]

    value: Any
    where: Where
    until: date
    why: str
    place: str = ""

    def __str__(self) -> str:
        inside = f" where {self.where}" if str(self.where) else ""
        return f"{self.key} = {self.value}{inside}"

    @classmethod
    @abstractmethod
    def expected(cls, value: Any) -> str:
        """Return a description of valid values, or "" if ``value`` is valid."""

    @abstractmethod
    def covers(self, violation: Violation) -> bool:
        """Return whether it is about such a violation of a module that ``where`` selects."""

    def has_place(self, violation: Violation, subject: Subject) -> bool:
        """Return whether ``where`` selects what is violated."""
        cell = subject.cell
        if not self.where.has_module(subject.facts, cell.program, cell.target):
            return False
        if not self.where.is_part:
            return True
        within = self.where.within(subject.stacks) if self.where.function else self.where
        return violation.pair is not None and within.has_pair(violation.pair)


class GrowthAllowed(Allowance):
    """Figures of a module may grow by so much."""

    __slots__ = ()
    key: ClassVar = "growth"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_growth(value)

    def covers(self, violation: Violation) -> bool:
        growth = violation.growth
        return (
            growth is not None
            and growth.figure in self.value
            and is_within(growth, self.value[growth.figure])
        )


class PairAllowed(Allowance):
    """A pair need not be as expected."""

    __slots__ = ()
    key: ClassVar = "pair"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_pair(value)

    def covers(self, violation: Violation) -> bool:
        return violation.pair is not None and is_pair(violation.pair, self.value)


ALLOWANCES: dict[str, type[Allowance]] = {kind.key: kind for kind in (GrowthAllowed, PairAllowed)}
