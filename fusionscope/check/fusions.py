"""Assertions on the fusions of one dump, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fusionscope.check.as_before import Tolerance
from fusionscope.check.baseline import Baseline, read_baseline, record_all, write_baseline
from fusionscope.check.checking import check
from fusionscope.check.expectation import Expectation
from fusionscope.check.expectation_files import read_expectations
from fusionscope.check.expectations import EXPECTATIONS
from fusionscope.check.subject import Cell
from fusionscope.check.where import Where
from fusionscope.errors import UnusableInput, quoted
from fusionscope.facts.result import Explanation
from fusionscope.system.files import make_directory, write_file


@dataclass(frozen=True, slots=True)
class Fusions:
    """The fusions of a dump. Each method raises ``AssertionError``, with the deviation and its
    reason, and ``UnusableInput`` if the question is invalid. ``where`` restricts it, as in a file
    of expectations: ``module``, ``computation``, ``op_name``, ``source``.

    ``baseline`` is the file that ``assert_matches_baseline`` reads, and writes if ``updates``.
    """

    explanation: Explanation
    baseline: Path
    updates: bool = False

    def assert_fused(self, pair: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("fused", pair, where)

    def assert_never_fused(self, pair: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("never_fused", pair, where)

    def assert_not_duplicated(self, pair: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("not_duplicated", pair, where)

    def assert_one_kernel(self, *operations: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("one_kernel", list(operations), where)

    def assert_kernels(self, at_most: int, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("kernels", at_most, where)

    def assert_launches(self, at_most: int, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("launches", at_most, where)

    def assert_bytes(self, at_most: int | str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("bytes", at_most, where)

    def assert_peak(self, at_most: int | str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("peak", at_most, where)

    def assert_temporaries(self, at_most: int | str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("temporaries", at_most, where)

    def assert_library_calls(self, *only: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("library_calls", list(only), where)

    def assert_not_launched(self, *opcodes: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("not_launched", list(opcodes), where)

    def assert_no_known_faults(self, *but: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("known_faults", list(but), where)

    def assert_not_refused(self, *reasons: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("not_refused", list(reasons), where)

    def assert_contains(self, *patterns: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("contains", list(patterns), where)

    def assert_not_contains(self, *patterns: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("not_contains", list(patterns), where)

    def assert_count(self, counts: dict[str, int], **where: str) -> None:
        __tracebackhide__ = True
        self._assert("count", counts, where)

    def assert_order(self, *patterns: str, **where: str) -> None:
        __tracebackhide__ = True
        self._assert("order", list(patterns), where)

    def assert_expectations(self, file: str | Path) -> None:
        """Assert all expectations of a file."""
        __tracebackhide__ = True
        self._check(read_expectations(Path(file)))

    def assert_matches_baseline(
        self, *, tolerance_percent: float = 0.0, allow_better: bool = False
    ) -> None:
        __tracebackhide__ = True
        if self.updates:
            make_directory(self.baseline.parent)
            write_file(self.baseline, write_baseline(record_all([Cell(self.explanation)])))
            return
        if not self.baseline.exists():
            raise AssertionError(f"no baseline {self.baseline}: --fusionscope-update writes it")
        tolerance = Tolerance(tolerance_percent / 100, allow_better)
        self._check([], read_baseline(self.baseline, tolerance))

    def _assert(self, kind: str, value: object, where: dict[str, str]) -> None:
        __tracebackhide__ = True
        if expected := EXPECTATIONS[kind].expected(value):
            raise UnusableInput(f"{kind} = {quoted(value)}, expected {expected}")
        self._check([EXPECTATIONS[kind](value, Where(**where))])

    def _check(self, expectations: Iterable[Expectation], baseline: Baseline | None = None) -> None:
        __tracebackhide__ = True
        result = check([Cell(self.explanation)], list(expectations), baseline)
        if result.is_met:
            return
        lines = []
        for outcome in result.outcomes:
            if not outcome.is_met:
                lines.append(f"not met: {outcome.expectation.title}")
            for violation in outcome.violations:
                lines.append(
                    f"  {violation.module}: {violation}" if violation.module else f"  {violation}"
                )
                lines += [f"    at {violation.source}"] if violation.source else []
        lines.append(f"dump: {self.explanation.path}")
        raise AssertionError("\n".join(lines))
