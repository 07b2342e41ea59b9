"""Limits what copies of a run take that go on with changed rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from fusionscope.hlo import Module
from fusionscope.passes.context import Work
from fusionscope.passes.gpu.priority_fusion.computation import Step
from fusionscope.system.forks import Forks

TOO_LONG = "too long"

Result = Module | str | Sequence[Step] | None


class Copies:
    """The copies of a process that replays a pass, by the numbers of their changes and the names of
    the computations that they end with.

    ``work`` is what the replay has done. No copy begins once all before it took what the replay
    had done until then, and none may take more; ``most`` is allowed to them in any case. None means
    no limits.
    """

    def __init__(self, jobs: int, most: int | None) -> None:
        self.work = Work()
        self._most = most
        self._begin = 0
        self._forks: Forks[tuple[int, str]] = Forks(jobs)
        self._left_out: set[int] = set()
        self._begun: list[tuple[int, str]] = []

    @property
    def current(self) -> int | None:
        """The number of the change that this process goes on with; None in the first process."""
        current = self._forks.current
        return None if current is None else current[0]

    def split(self, number: int, computation: str = "") -> bool:
        """Copy this process, if that is within the limits. Return true in the copy."""
        most = self.most
        if number in self._left_out or (most is not None and self.taken >= most):
            self._left_out.add(number)
            return False
        self._begun.append((number, computation))
        is_copy = self._forks.split((number, computation))
        if is_copy:
            self._begin = self.work.amount
            if most is not None:
                self.work.most = self._begin + most
        return is_copy

    @property
    def most(self) -> int | None:
        """How much work all copies may take before the last one begins; None for no limit."""
        return None if self._most is None else max(self._most, self.work.amount)

    @property
    def taken(self) -> int:
        """The work of all copies that have ended."""
        return sum(work for _, work in self._forks.finished.values())

    def end(self, result: Result) -> NoReturn:
        """End this copy, with a result."""
        self._forks.end((result, self.work.amount - self._begin))

    def fail(self) -> NoReturn:
        """End this copy without a result."""
        self._forks.fail()

    def results(self) -> dict[int, dict[str, Result]]:
        """Wait for all copies. Return their results by computation, and ``TOO_LONG`` for changes
        that were left out. Changes of which a copy failed have none.
        """
        finished = self._forks.results()
        results: dict[int, dict[str, Result]] = {}
        for (number, computation), (result, _) in finished.items():
            results.setdefault(number, {})[computation] = result
        for number in {number for number, _ in set(self._begun) - finished.keys()}:
            results.pop(number, None)
        return results | {number: {"": TOO_LONG} for number in self._left_out}
