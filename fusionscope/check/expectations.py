"""Expectations for a module: one small class each.

An expectation refers to operations as before fusion, and to kernels as compiled. An expectation
that selects nothing fails.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any, ClassVar

from fusionscope.explain.memory_facts import MemoryFacts
from fusionscope.explain.result import KernelFacts, ModuleFacts, Operation, PairFacts
from fusionscope.history.kernels import KernelKind
from fusionscope.history.outcomes import TOGETHER, Outcome

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_MOST = 4  # names per line
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmg]?b?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Where:
    """Selects modules and parts of them. Globs are those of the shell. ``device`` is a part of the
    name of the device or backend. ``source`` is ``FILE`` or ``FILE:LINE``, where the file may be
    the end of the path. None matches everything.
    """

    module: str | None = None
    computation: str | None = None
    device: str | None = None
    op_name: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name} {value}" for name, value in given if value is not None)

    def has_module(self, facts: ModuleFacts) -> bool:
        if self.module is not None and not fnmatchcase(facts.name, self.module):
            return False
        known = f"{facts.backend} {facts.device}".lower()
        return self.device is None or self.device.lower() in known

    @property
    def is_part(self) -> bool:
        """Whether it selects parts of modules."""
        return (self.computation, self.op_name, self.source) != (None, None, None)

    def has_pair(self, pair: PairFacts) -> bool:
        return self._has_computation(pair.computation) and any(
            self._has(end.op_name, end.source) for end in (pair.producer, pair.consumer)
        )

    def has_kernel(self, kernel: KernelFacts) -> bool:
        return self._has_computation(kernel.computation) and self._has(
            kernel.op_name, kernel.source
        )

    def has_operation(self, operation: Operation) -> bool:
        """Return whether an operation matches, as far as its source is known."""
        return self._has(operation.op_name, operation.source)

    def _has_computation(self, name: str) -> bool:
        return self.computation is None or fnmatchcase(name, self.computation)

    def _has(self, op_name: str | None, source: str | None) -> bool:
        if self.op_name is not None and not fnmatchcase(op_name or "", self.op_name):
            return False
        return self.source is None or (source is not None and _is_from(source, self.source))


def _is_from(place: str, wanted: str) -> bool:
    file, line = _cut(wanted)
    found, found_line = _cut(place)
    parts = PurePath(file).parts
    return PurePath(found).parts[-len(parts) :] == parts and line in ("", found_line)


def _cut(place: str) -> tuple[str, str]:
    file, _, line = place.rpartition(":")
    return (file, line) if line.isdecimal() else (place, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A deviation. ``what`` describes it; ``about`` names the pair or kernel. ``reason`` is the
    rule that refused it, ``because`` the rule's text, ``evidence`` its source, as in ``PairFacts``.
    """

    expectation: Expectation
    module: str
    what: str
    about: str = ""
    source: str | None = None
    reason: str | None = None
    because: str | None = None
    evidence: str | None = None

    def __str__(self) -> str:
        """Return one line."""
        words = f"{self.about} {self.what}" if self.about else self.what
        if self.reason is not None:
            guess = "a guess: " if self.evidence == "guess" else ""
            words += f" ({guess}{self.reason}{f': {self.because}' if self.because else ''})"
        return words


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. ``value`` is the value of ``key`` in the file, ``message`` the user's own
    text, ``line`` the line in the file (from 1), or None if it is unknown.
    """

    key: ClassVar[str]

    value: Any
    where: Where = Where()
    message: str = ""
    line: int | None = None

    def __str__(self) -> str:
        value = self.value
        words = value if isinstance(value, str) else repr(value)
        inside = f" where {self.where}" if str(self.where) else ""
        return f"{self.key} = {words}{inside}"

    @property
    def title(self) -> str:
        """The user's own text, if there is any."""
        return self.message or str(self)

    @classmethod
    @abstractmethod
    def expected(cls, value: Any) -> str:
        """Return a description of valid values, or "" if ``value`` is valid."""

    @abstractmethod
    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        """Yield the deviations of a module. Selecting nothing is a deviation too."""

    def notes(self, facts: ModuleFacts) -> Iterator[str]:
        """Yield other remarks about the module, whether or not it meets the expectation."""
        yield from ()

    def violation(self, facts: ModuleFacts, what: str, **more: Any) -> Violation:
        return Violation(expectation=self, module=facts.name, what=what, **more)


def _arrow(pair: PairFacts) -> str:
    return f"{pair.producer.name} -> {pair.consumer.name}"


def _is_pattern(value: Any) -> str:
    good = isinstance(value, str) and all(map(str.strip, value.split("->")))
    return "" if good and value.count("->") == 1 else "'PRODUCER -> CONSUMER'"


def _is_count(value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return "" if is_number else "a whole number, the maximum"


def _is_size(value: Any) -> str:
    if isinstance(value, str) and _SIZE.fullmatch(value.strip()):
        return ""
    return "" if not _is_count(value) else "a number of bytes, or a size such as '12 MB'"


def _bytes_of(value: int | str) -> int:
    if isinstance(value, int):
        return value
    found = _SIZE.fullmatch(value.strip())
    assert found is not None
    return int(float(found[1]) * _UNITS[found[2].lower().removesuffix("b")])


def _is_list(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
    return "" if good else "a list of strings"


def _fits(operation: Operation, pattern: str) -> bool:
    names = (operation.name, operation.opcode, operation.op_name or "")
    return any(fnmatchcase(name, pattern.strip().lstrip("%")) for name in names)


class _PairExpectation(Expectation):
    """An expectation for each pair that ``value`` names, ``PRODUCER -> CONSUMER``: names, opcodes
    or op names.
    """

    __slots__ = ()

    @classmethod
    def expected(cls, value: Any) -> str:
        return _is_pattern(value)

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        producer, _, consumer = self.value.partition("->")
        found = [
            pair
            for pair in facts.pairs
            if pair.outcome != Outcome.GONE
            and self.where.has_pair(pair)
            and _fits(pair.producer, producer)
            and _fits(pair.consumer, consumer)
        ]
        if not found:
            yield self.violation(facts, f"no pair before fusion matches {self.value}")
        for pair in found:
            if what := self.problem(pair):
                yield self.violation(
                    facts,
                    what,
                    about=_arrow(pair),
                    source=pair.consumer.source or pair.producer.source,
                    reason=pair.reason,
                    because=pair.title or pair.message,
                    evidence=pair.evidence,
                )

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
        return _is_list(value) or ("" if value else "a list of operations")

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        pairs = [pair for pair in facts.pairs if self.where.has_pair(pair)]
        operations = {
            end.name: end
            for pair in pairs
            if pair.outcome != Outcome.GONE
            for end in (pair.producer, pair.consumer)
            if self.where.has_operation(end)
        }
        kernels: dict[str, set[str]] = defaultdict(set)
        for pair in facts.pairs:
            if pair.kernel is not None:
                kernels[pair.kernel] |= {pair.producer.name, pair.consumer.name}
        for pattern in self.value:
            if not any(_fits(each, pattern) for each in operations.values()):
                yield self.violation(facts, f"no operation before fusion matches {pattern}")
                return
        apart = self._divided if len(self.value) == 1 else self._without_others
        for start, reached, missing in apart(operations, [*kernels.values()]):
            yield self._apart(facts, start, pairs, reached, missing)

    def _divided(
        self, operations: Mapping[str, Operation], kernels: Sequence[set[str]]
    ) -> Iterator[_Apart]:
        """Yield all operations that match the only pattern, if no kernel has them all."""
        meant = {name for name, each in operations.items() if _fits(each, self.value[0])}
        if not any(meant <= names for names in kernels):
            start = operations[min(meant)]
            reached = set().union(*(names for names in kernels if start.name in names))
            yield start, reached, sorted(meant - reached - {start.name})

    def _without_others(
        self, operations: Mapping[str, Operation], kernels: Sequence[set[str]]
    ) -> Iterator[_Apart]:
        """Yield operations that match the first pattern, and share no kernel with the others."""
        first, *others = self.value
        for start in operations.values():
            if not _fits(start, first):
                continue
            together = [names & operations.keys() for names in kernels if start.name in names]
            if not any(
                all(any(_fits(operations[name], other) for name in names) for other in others)
                for names in together
            ):
                yield start, set().union(*together), others

    def _apart(
        self,
        facts: ModuleFacts,
        start: Operation,
        pairs: Iterable[PairFacts],
        reached: set[str],
        others: list[str],
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
        wanted = [
            pair
            for pair in refused
            if any(_fits(end, each) for end in (pair.producer, pair.consumer) for each in others)
        ]
        what = f"shares no kernel with {' and '.join(others[:_MOST])}"
        if len(others) > _MOST:
            what += f" and {len(others) - _MOST} more"
        for pair in (wanted or refused)[:1]:
            return self.violation(
                facts,
                f"{what}: {_arrow(pair)} is not fused",
                about=start.name,
                source=start.source,
                reason=pair.reason,
                because=pair.title or pair.message,
                evidence=pair.evidence,
            )
        return self.violation(facts, what, about=start.name, source=start.source)


class _KernelExpectation(Expectation):
    """An expectation for all kernels of the final module that ``where`` selects."""

    __slots__ = ()

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        found = [kernel for kernel in facts.kernels if self.where.has_kernel(kernel)]
        if not found and self.where.is_part:
            yield self.violation(facts, f"no kernel matches {self.where}")
        yield from self.problems(facts, found)

    @abstractmethod
    def problems(self, facts: ModuleFacts, kernels: list[KernelFacts]) -> Iterator[Violation]: ...


class _AtMost(_KernelExpectation):
    """A sum over kernels is at most ``value``."""

    __slots__ = ()
    unit: ClassVar[str]

    @classmethod
    def expected(cls, value: Any) -> str:
        return _is_count(value)

    @property
    def limit(self) -> int:
        return int(self.value)

    @abstractmethod
    def amount(self, kernel: KernelFacts) -> int: ...

    def problems(self, facts: ModuleFacts, kernels: list[KernelFacts]) -> Iterator[Violation]:
        found = sum(map(self.amount, kernels))
        if found > self.limit:
            yield self.violation(facts, f"{found:,} {self.unit}, expected at most {self.limit:,}")


class Kernels(_AtMost):
    __slots__ = ()
    key: ClassVar = "kernels"
    unit: ClassVar = "kernels"

    def amount(self, kernel: KernelFacts) -> int:
        return 1


class Launches(_AtMost):
    """The launches of one run, as far as trip counts are known."""

    __slots__ = ()
    key: ClassVar = "launches"
    unit: ClassVar = "launches"

    def amount(self, kernel: KernelFacts) -> int:
        return kernel.runs


class Bytes(_AtMost):
    """The bytes that kernels read and write in one run. ``value`` is a number, or text such as ``12
    MB``.
    """

    __slots__ = ()
    key: ClassVar = "bytes"
    unit: ClassVar = "bytes moved"

    @classmethod
    def expected(cls, value: Any) -> str:
        return _is_size(value)

    @property
    def limit(self) -> int:
        return _bytes_of(self.value)

    def amount(self, kernel: KernelFacts) -> int:
        return kernel.bytes_moved


class _Memory(Expectation):
    """A figure of the memory of a module is at most ``value``, a size as for ``Bytes``."""

    __slots__ = ()
    unit: ClassVar[str]

    @classmethod
    def expected(cls, value: Any) -> str:
        return _is_size(value)

    @abstractmethod
    def amount(self, memory: MemoryFacts) -> int | None: ...

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        limit = _bytes_of(self.value)
        found = self.amount(facts.memory) if facts.memory is not None else None
        if self.where.is_part:
            yield self.violation(facts, f"{self.key} is of whole modules, not of {self.where}")
        elif found is None:
            yield self.violation(facts, "the dump does not show the memory of this module")
        elif found > limit:
            largest = facts.memory.at_peak[0] if facts.memory and facts.memory.at_peak else None
            yield self.violation(
                facts,
                f"{found:,} {self.unit}, expected at most {limit:,}"
                + (f"; the largest value at the peak is {largest.name}" if largest else ""),
                source=largest.source if largest else None,
            )


class Peak(_Memory):
    """The most bytes that are alive at once."""

    __slots__ = ()
    key: ClassVar = "peak"
    unit: ClassVar = "bytes of memory at the peak"

    def amount(self, memory: MemoryFacts) -> int | None:
        return memory.peak_bytes


class Temporaries(_Memory):
    """The bytes that are reserved for values that are neither arguments nor results."""

    __slots__ = ()
    key: ClassVar = "temporaries"
    unit: ClassVar = "bytes of temporaries"

    def amount(self, memory: MemoryFacts) -> int | None:
        return memory.temporaries


class _NoKernel(_KernelExpectation):
    """No kernel is refused by ``refuses``."""

    __slots__ = ()

    @classmethod
    def expected(cls, value: Any) -> str:
        return _is_list(value)

    @abstractmethod
    def refuses(self, kernel: KernelFacts) -> str:
        """Return a description of the kernel if it is not allowed."""

    def problems(self, facts: ModuleFacts, kernels: list[KernelFacts]) -> Iterator[Violation]:
        for kernel in kernels:
            if what := self.refuses(kernel):
                yield self.violation(facts, what, about=kernel.name, source=kernel.source)


class LibraryCalls(_NoKernel):
    """No library calls but these, by the names of functions or kinds of library fusions."""

    __slots__ = ()
    key: ClassVar = "library_calls"

    def refuses(self, kernel: KernelFacts) -> str:
        is_library = kernel.kind in (KernelKind.LIBRARY, KernelKind.CUSTOM_CALL)
        if not is_library or any(fnmatchcase(kernel.emitter, each) for each in self.value):
            return ""
        return f"is a call of {kernel.emitter}"


class NotLaunched(_NoKernel):
    """No kernel consists of only these opcodes, such as ``copy`` and ``transpose``."""

    __slots__ = ()
    key: ClassVar = "not_launched"

    def refuses(self, kernel: KernelFacts) -> str:
        known = [
            member for member in kernel.members if any(fnmatchcase(member, o) for o in self.value)
        ]
        is_refused = bool(known) and len(known) == len(kernel.members)
        return f"launches nothing but {', '.join(dict.fromkeys(known))}" if is_refused else ""


class NotRefused(Expectation):
    """No pair is refused for these reasons, ids of rules."""

    __slots__ = ()
    key: ClassVar = "not_refused"

    @classmethod
    def expected(cls, value: Any) -> str:
        return _is_list(value)

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        pairs = [pair for pair in facts.pairs if self.where.has_pair(pair)]
        if not pairs and self.where.is_part:
            yield self.violation(facts, f"no pair matches {self.where}")
        for pair in pairs:
            if pair.reason in self.value:
                yield self.violation(
                    facts,
                    "is refused",
                    about=_arrow(pair),
                    source=pair.consumer.source or pair.producer.source,
                    reason=pair.reason,
                    because=pair.title or pair.message,
                    evidence=pair.evidence,
                )


EXPECTATIONS: dict[str, type[Expectation]] = {
    each.key: each
    for each in (
        Fused,
        NeverFused,
        NotDuplicated,
        OneKernel,
        Kernels,
        Launches,
        Bytes,
        Peak,
        Temporaries,
        LibraryCalls,
        NotLaunched,
        NotRefused,
    )
}
