"""Expectations of the text of a final module: operations, collectives, custom calls."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, ClassVar

from fusionscope.check.expectation import Expectation, Violation, expected_list
from fusionscope.check.subject import Subject
from fusionscope.facts.source_lines import user_line
from fusionscope.hlo import Instruction
from fusionscope.hlo.printer import instruction_text

_METADATA = re.compile(r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}')
_TARGET = re.compile(r'custom_call_target="((?:[^"\\]|\\.)*)"')
_REGEX = re.compile(r"\{\{(.*?)\}\}")
_TEXT = re.compile(r"[\s(=]|\{\{")  # what no name of an operation has


@dataclass(frozen=True, slots=True)
class _Line:
    """An instruction, and its text without metadata and with single spaces."""

    instruction: Instruction
    text: str

    def fits(self, pattern: str) -> bool:
        """Return whether ``pattern`` is a glob of the opcode or of the function that a custom call
        calls or, if it has a parenthesis, an equals sign or a space, is in the text.
        """
        if _TEXT.search(pattern):
            return _compiled(pattern).search(self.text) is not None
        target = _TARGET.search(self.text)
        names = (self.instruction.opcode, target[1] if target else "")
        return any(fnmatchcase(name, pattern) for name in names)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression: only what is in {{ }} is one already."""
    parts = _REGEX.split(" ".join(pattern.split()))
    return re.compile(
        "".join(part if number % 2 else re.escape(part) for number, part in enumerate(parts))
    )


def _expected_patterns(value: Any) -> str:
    if expected := expected_list(value) or ("" if value else "a list of patterns"):
        return expected
    for pattern in value:
        try:
            _compiled(pattern)
        except re.error as error:
            return f"regular expressions in {{{{ }}}}: {error}"
    return ""


class _TextExpectation(Expectation):
    """An expectation of the instructions in the computations that ``where`` selects. ``value`` is a
    list of patterns, or has them as keys.
    """

    __slots__ = ()

    @classmethod
    def expected(cls, value: Any) -> str:
        return _expected_patterns(value)

    def check(self, subject: Subject) -> Iterator[Violation]:
        texts = [
            [
                line
                for instruction in computation.instructions
                if self._selects(line := _line(instruction))
            ]
            for computation in subject.final.computations
            if self.where.has_computation(computation.name)
        ]
        if not any(texts) and self.where.is_part:
            yield self.violation(subject, f"no instruction matches {self.where}")
            return
        yield from self.problems(subject, texts)

    def _selects(self, line: _Line) -> bool:
        instruction = line.instruction
        place = user_line(instruction.stack)
        return self.where.has_place(
            instruction.name, instruction.op_name, str(place) if place is not None else None
        )

    @abstractmethod
    def problems(self, subject: Subject, texts: list[list[_Line]]) -> Iterator[Violation]:
        """Yield the deviations. ``texts`` are the lines of each computation."""

    def at(self, subject: Subject, line: _Line, what: str) -> Violation:
        place = user_line(line.instruction.stack)
        return self.violation(
            subject,
            what,
            about=line.instruction.name,
            source=str(place) if place is not None else None,
        )


def _line(instruction: Instruction) -> _Line:
    text = _METADATA.sub("", instruction_text(instruction))
    return _Line(instruction, " ".join(text.split()))


class Contains(_TextExpectation):
    """Each pattern matches an instruction."""

    __slots__ = ()
    key: ClassVar = "contains"

    def problems(self, subject: Subject, texts: list[list[_Line]]) -> Iterator[Violation]:
        for pattern in self.value:
            if not any(line.fits(pattern) for lines in texts for line in lines):
                yield self.violation(subject, f"no instruction matches {pattern}")


class NotContains(_TextExpectation):
    """No pattern matches an instruction."""

    __slots__ = ()
    key: ClassVar = "not_contains"

    def problems(self, subject: Subject, texts: list[list[_Line]]) -> Iterator[Violation]:
        for pattern in self.value:
            for lines in texts:
                for line in lines:
                    if line.fits(pattern):
                        yield self.at(subject, line, f"matches {pattern}")


class Count(_TextExpectation):
    """Each pattern matches exactly so many instructions."""

    __slots__ = ()
    key: ClassVar = "count"

    @classmethod
    def expected(cls, value: Any) -> str:
        good = isinstance(value, dict) and all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in value.values()
        )
        if not good or not value:
            return "a table of patterns with a whole number each"
        return _expected_patterns(list(value))

    def problems(self, subject: Subject, texts: list[list[_Line]]) -> Iterator[Violation]:
        for pattern, expected in self.value.items():
            matches = [line for lines in texts for line in lines if line.fits(pattern)]
            if len(matches) == expected:
                continue
            what = f"{len(matches)} instructions match {pattern}, expected {expected}"
            if len(matches) > expected:
                yield self.at(subject, matches[expected], what)
            else:
                yield self.violation(subject, what)


class Order(_TextExpectation):
    """In one computation, the patterns match instructions one after the other, in this order."""

    __slots__ = ()
    key: ClassVar = "order"

    def problems(self, subject: Subject, texts: list[list[_Line]]) -> Iterator[Violation]:
        reached = max((self._reached(lines) for lines in texts), default=0)
        if reached < len(self.value):
            behind = f" after {' and '.join(self.value[:reached])}" if reached else ""
            what = f"no instruction matches {self.value[reached]}{behind}, in one computation"
            yield self.violation(subject, what)

    def _reached(self, lines: list[_Line]) -> int:
        """Return how many patterns match in order."""
        reached = 0
        for line in lines:
            if reached < len(self.value) and line.fits(self.value[reached]):
                reached += 1
        return reached
