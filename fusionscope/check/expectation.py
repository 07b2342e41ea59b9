"""What is expected of a module: the form of every expectation, and of a deviation."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from fusionscope.check.subject import Subject
from fusionscope.check.where import EVERYWHERE, Where
from fusionscope.facts.result import Operation, PairFacts
from fusionscope.rules.messages import UNKNOWN

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmg]?b?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Growth:
    """A figure that grew: its name in a file, and its values."""

    figure: str
    before: float
    after: float

    def __str__(self) -> str:
        """Return it with the change in percent."""
        share = growth_in_percent(self.before, self.after)
        return f"{in_digits(self.before)} → {in_digits(self.after)}{share and f' ({share})'}"


def growth_in_percent(before: float, after: float) -> str:
    """Return text such as ``+5.2%``, empty if there was nothing before."""
    if not before:
        return ""
    percent = 100 * (after / before - 1)
    return f"{percent:+,.0f}%" if abs(percent) >= 99.95 else f"{percent:+.3g}%"


def in_digits(figure: float) -> str:
    """Return a whole number in full, and another one with at least three digits."""
    if isinstance(figure, int):
        return f"{figure:,}"
    return f"{figure:,.0f}" if figure >= 99.95 else f"{figure:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A deviation. ``what`` describes it; ``about`` names the pair or kernel. ``reason`` is the
    rule that refused it, ``because`` the rule's text, ``evidence`` its source, as in ``PairFacts``.
    ``pair`` is the pair that it is about, if it is about one, and ``growth`` the figure that grew.
    """

    expectation: Expectation
    module: str
    what: str
    about: str = ""
    source: str | None = None
    reason: str | None = None
    because: str | None = None
    evidence: str | None = None
    pair: PairFacts | None = None
    growth: Growth | None = None

    def __str__(self) -> str:
        """Return one line."""
        words = f"{self.about} {self.what}" if self.about else self.what
        if self.reason == UNKNOWN:
            words += " (reason not known)"
        elif self.reason is not None:
            guess = "a guess: " if self.evidence == "guess" else ""
            words += f" ({guess}{self.reason}{f': {self.because}' if self.because else ''})"
        return words


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. ``value`` is the value of ``key`` in the file, ``message`` the user's own
    text, ``line`` the line in the file (from 1), or None if it is unknown.
    """

    key: ClassVar[str]
    compares: ClassVar[bool] = False  # with what a module was before

    value: Any
    where: Where = EVERYWHERE
    message: str = ""
    line: int | None = None

    def __str__(self) -> str:
        value = self.value
        words = value if isinstance(value, str) else repr(value)
        inside = f" where {self.where}" if str(self.where) else ""
        return f"{self.key} = {words}{inside}"

    @property
    def identity(self) -> str:
        """What tells it from other expectations, in this run and later ones."""
        return str(self)

    @property
    def title(self) -> str:
        """The user's own text, if there is any."""
        return self.message or str(self)

    @classmethod
    @abstractmethod
    def expected(cls, value: Any) -> str:
        """Return a description of valid values, or "" if ``value`` is valid."""

    @abstractmethod
    def check(self, subject: Subject) -> Iterator[Violation]:
        """Yield the deviations of a module. Selecting nothing is a deviation too. Raises
        ``UnusableInput`` if what it needs of the dump cannot be read.
        """

    @property
    def needs_resources(self) -> bool:
        """Whether it is about what kernels take of a GPU, which takes time to find out."""
        return False

    def unknown(self, subject: Subject) -> str:
        """Return why the dump does not show what the expectation is about, or "" if it does."""
        return ""

    def notes(self, subject: Subject) -> Iterator[str]:
        """Yield other remarks about the module, whether or not it meets the expectation."""
        yield from ()

    def violation(self, subject: Subject, what: str, **more: Any) -> Violation:
        return Violation(expectation=self, module=str(subject), what=what, **more)

    def about_pair(
        self, subject: Subject, pair: PairFacts, what: str, about: str = ""
    ) -> Violation:
        """Return a violation with the reason of ``pair``, about that unless ``about`` is given."""
        return self.violation(
            subject,
            what,
            about=about or arrow(pair),
            source=pair.consumer.source or pair.producer.source,
            reason=pair.reason,
            because=pair.title or pair.message,
            evidence=pair.evidence,
            pair=pair,
        )


def arrow(pair: PairFacts) -> str:
    return f"{pair.producer.name} -> {pair.consumer.name}"


def expected_pair(value: Any) -> str:
    good = isinstance(value, str) and all(map(str.strip, value.split("->")))
    return "" if good and value.count("->") == 1 else "'PRODUCER -> CONSUMER'"


def expected_count(value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return "" if is_number else "a whole number, the maximum"


def expected_size(value: Any) -> str:
    if isinstance(value, str) and _SIZE.fullmatch(value.strip()):
        return ""
    return "" if not expected_count(value) else "a number of bytes, or a size such as '12 MB'"


def bytes_of(value: int | str) -> int:
    """Return the bytes of a valid size."""
    if isinstance(value, int):
        return value
    match = _SIZE.fullmatch(value.strip())
    assert match is not None
    return int(float(match[1]) * _UNITS[match[2].lower().removesuffix("b")])


_PERCENT = re.compile(r"\+?(\d{1,9}(?:\.\d{1,9})?)\s*%")


def percent_of(value: str) -> float | None:
    """Return a share such as ``5%`` in percent, None if ``value`` is none."""
    match = _PERCENT.fullmatch(value.strip())
    return float(match[1]) if match is not None else None


def expected_list(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    return "" if good else "a list of strings"


def is_pair(pair: PairFacts, pattern: str) -> bool:
    """Return whether ``PRODUCER -> CONSUMER`` matches: names, opcodes or op names."""
    producer, _, consumer = pattern.partition("->")
    return fits(pair.producer, producer) and fits(pair.consumer, consumer)


def fits(operation: Operation, pattern: str) -> bool:
    names = (operation.name, operation.opcode, operation.op_name or "")
    return any(fnmatchcase(name, pattern.strip().lstrip("%")) for name in names)
