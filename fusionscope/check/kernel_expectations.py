"""Expectations of kernels as compiled, and of memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from fusionscope.check.expectation import (
    Expectation,
    Violation,
    bytes_of,
    expected_count,
    expected_list,
    expected_size,
    percent_of,
)
from fusionscope.check.subject import Subject
from fusionscope.facts.result import KernelFacts
from fusionscope.findings.advisories.facts import Advisory
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.history.kernels import KernelKind
from fusionscope.words.text import duration


class _KernelExpectation(Expectation):
    """An expectation for all kernels of the final module that ``where`` selects."""

    __slots__ = ()

    def check(self, subject: Subject) -> Iterator[Violation]:
        kernels = subject.facts.kernels
        matches = [kernel for kernel in kernels if self.where.has_kernel(kernel)]
        if not matches and self.where.is_part:
            yield self.violation(subject, f"no kernel matches {self.where}{self._nearest(kernels)}")
        yield from self.problems(subject, matches)

    def _nearest(self, kernels: Sequence[KernelFacts]) -> str:
        placed = [kernel for kernel in kernels if kernel.source is not None]
        if self.where.source is None or not placed:
            return ""
        nearest = min(placed, key=lambda kernel: self.where.distance(kernel.source or ""))
        return f"; the nearest is {nearest.name} at {self.where.shortened(nearest.source or '')}"

    @abstractmethod
    def problems(self, subject: Subject, kernels: list[KernelFacts]) -> Iterator[Violation]: ...


class _AtMost(_KernelExpectation):
    """A sum over kernels is at most ``value``."""

    __slots__ = ()
    unit: ClassVar[str]

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_count(value)

    @property
    def limit(self) -> int:
        return int(self.value)

    @abstractmethod
    def amount(self, kernel: KernelFacts) -> int: ...

    def problems(self, subject: Subject, kernels: list[KernelFacts]) -> Iterator[Violation]:
        amount = sum(map(self.amount, kernels))
        if amount > self.limit:
            yield self.violation(
                subject, f"{amount:,} {self.unit}, expected at most {self.limit:,}"
            )


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
        return kernel.launches


class Bytes(_AtMost):
    """The bytes read and written in one run. ``value`` is a number, or text such as ``12 MB``."""

    __slots__ = ()
    key: ClassVar = "bytes"
    unit: ClassVar = "bytes moved"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_size(value)

    @property
    def limit(self) -> int:
        return bytes_of(self.value)

    def amount(self, kernel: KernelFacts) -> int:
        return kernel.bytes_moved


class _Memory(Expectation):
    """A figure of the memory of a module is at most ``value``, a size as for ``Bytes``."""

    __slots__ = ()
    unit: ClassVar[str]

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_size(value)

    @abstractmethod
    def amount(self, memory: MemoryFacts) -> int | None: ...

    def check(self, subject: Subject) -> Iterator[Violation]:
        limit, memory = bytes_of(self.value), subject.facts.find(MemoryFacts)
        amount = self.amount(memory) if memory is not None else None
        if self.where.is_part:
            yield self.violation(subject, f"{self.key} is of whole modules, not of {self.where}")
        elif amount is None:
            yield self.violation(subject, "the dump does not show the memory of this module")
        elif amount > limit:
            largest = memory.at_peak[0] if memory and memory.at_peak else None
            yield self.violation(
                subject,
                f"{amount:,} {self.unit}, expected at most {limit:,}"
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


class AtBest(Expectation):
    """The least that a module could take is at least ``value`` of its estimated time, a share: what
    moves the module away from its bound is refused, and what makes the bound lower too.
    """

    __slots__ = ()
    key: ClassVar = "at_best"

    @classmethod
    def expected(cls, value: Any) -> str:
        is_share = isinstance(value, str) and percent_of(value) is not None
        return "" if is_share else "a share of the time, such as '30%'"

    def check(self, subject: Subject) -> Iterator[Violation]:
        summary, least = subject.facts.summary, percent_of(self.value) or 0.0
        if self.where.is_part:
            yield self.violation(subject, f"{self.key} is of whole modules, not of {self.where}")
        elif summary.time is None or summary.at_best_us is None:
            yield self.violation(subject, "the dump does not show the GPU, so there is no bound")
        elif 100 * summary.at_best_us < least * summary.time.microseconds:
            yield self.violation(
                subject,
                f"takes {duration(summary.time.microseconds)}, at best "
                f"{duration(summary.at_best_us)}, expected at least {self.value} of the time",
            )


class _NoKernel(_KernelExpectation):
    """No kernel is refused by ``refuses``."""

    __slots__ = ()

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_list(value)

    @abstractmethod
    def refuses(self, kernel: KernelFacts) -> str:
        """Return a description of the kernel if it is not allowed."""

    def problems(self, subject: Subject, kernels: list[KernelFacts]) -> Iterator[Violation]:
        for kernel in kernels:
            if what := self.refuses(kernel):
                yield self.violation(subject, what, about=kernel.name, source=kernel.source)


class LibraryCalls(_NoKernel):
    """No library calls but these, by the names of functions or kinds of library fusions."""

    __slots__ = ()
    key: ClassVar = "library_calls"

    def refuses(self, kernel: KernelFacts) -> str:
        is_library = kernel.kind in (KernelKind.LIBRARY, KernelKind.CUSTOM_CALL)
        if not is_library or any(fnmatchcase(kernel.emitter, pattern) for pattern in self.value):
            return ""
        return f"is a call of {kernel.emitter}"


class NotLaunched(_NoKernel):
    """No kernel consists of only these opcodes, such as ``copy`` and ``transpose``."""

    __slots__ = ()
    key: ClassVar = "not_launched"

    def refuses(self, kernel: KernelFacts) -> str:
        refused = [
            member for member in kernel.members if any(fnmatchcase(member, o) for o in self.value)
        ]
        is_refused = bool(refused) and len(refused) == len(kernel.members)
        return f"launches nothing but {', '.join(dict.fromkeys(refused))}" if is_refused else ""


class KnownFaults(_KernelExpectation):
    """No kernel shows, or may show, a known fault of the compiler but these, by their ids."""

    __slots__ = ()
    key: ClassVar = "known_faults"

    @classmethod
    def expected(cls, value: Any) -> str:
        return expected_list(value)

    def problems(self, subject: Subject, kernels: list[KernelFacts]) -> Iterator[Violation]:
        selected = {kernel.name for kernel in kernels}
        for advisory in subject.facts.find_all(Advisory):
            if any(fnmatchcase(advisory.id, pattern) for pattern in self.value):
                continue
            verb = "has" if advisory.is_certain else "may have"
            for name in advisory.instructions:
                if name in selected or not self.where.is_part:
                    what = f"{verb} the fault {advisory.id}: {advisory.title} ({advisory.thread})"
                    yield self.violation(subject, what, about=name, source=advisory.source)
