"""Budgets: how much a figure of a module may grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from fusionscope.check.expectation import (
    Expectation,
    Growth,
    Violation,
    bytes_of,
    expected_count,
    expected_size,
    percent_of,
)
from fusionscope.check.record import FIGURES, TIMES, figures_of, record_of
from fusionscope.check.subject import Subject
from fusionscope.findings.resources.facts import ABOUT

_SIZES = ("bytes", "peak", "spills")


def expected_growth(value: Any) -> str:
    """Return a description of valid growth of figures, or "" if ``value`` is valid."""
    if not isinstance(value, dict) or not value or not value.keys() <= FIGURES.keys():
        return f"a table of {', '.join(FIGURES)}, each with what it may grow by"
    for figure, limit in value.items():
        if isinstance(limit, str) and percent_of(limit) is not None:
            continue
        if figure in TIMES:
            return f"for {figure} a share, such as '5%'"
        if figure == "launches" and expected_count(limit):
            return "for launches a whole number or a share, such as '10%'"
        if figure in _SIZES and expected_size(limit):
            return f"for {figure} a size or a share, such as '1 MB' or '10%'"
    return ""


def is_within(growth: Growth, limit: int | str) -> bool:
    """Return whether a figure grew by at most ``limit``, a share of what it was, or an amount."""
    percent = percent_of(limit) if isinstance(limit, str) else None
    if percent is not None:
        return growth.after <= growth.before * (1 + percent / 100)
    return growth.after <= growth.before + bytes_of(limit)


class MaxGrowth(Expectation):
    """A figure of a module grows by at most so much. ``value`` is a table with one figure."""

    __slots__ = ()
    key: ClassVar = "max_growth"
    compares: ClassVar = True

    def __str__(self) -> str:
        inside = f" where {self.where}" if str(self.where) else ""
        return f"max_growth of {self.figure} = {self.value[self.figure]}{inside}"

    @property
    def figure(self) -> str:
        (name,) = self.value
        return str(name)

    @property
    def needs_resources(self) -> bool:
        return self.figure == "spills"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_growth(value)

    def check(self, subject: Subject) -> Iterator[Violation]:
        growth = self.growth(subject)
        if growth is not None and not is_within(growth, self.value[self.figure]):
            words = FIGURES[self.figure].words
            yield self.violation(
                subject,
                f"{words} {growth}, expected at most {self.value[self.figure]} more",
                growth=growth,
            )

    def unknown(self, subject: Subject) -> str:
        if subject.before is None:
            return ""
        words = FIGURES[self.figure].words
        if record_of(subject.facts).figure(self.figure) is None:
            notes = [note for note in subject.facts.notes if self._is_about(note)]
            return "; ".join([f"{words}: unknown", *notes])
        if subject.before.figure(self.figure) is None:
            return f"{words}: unknown of the module before; --update writes a new baseline"
        return ""

    def _is_about(self, note: str) -> bool:
        return self.needs_resources and note.startswith(ABOUT)

    def growth(self, subject: Subject) -> Growth | None:
        """Return how the figure changed, None if its values cannot be compared."""
        if subject.before is None:
            return None
        both = figures_of(subject.before, record_of(subject.facts), self.figure)
        return Growth(self.figure, *both) if both is not None else None

    def notes(self, subject: Subject) -> Iterator[str]:
        is_time = self.figure in TIMES and subject.before is not None
        if is_time and not self.unknown(subject) and self.growth(subject) is None:
            yield "its times cannot be compared: those of other library calls are lower bounds"
