"""Limits what copies of a run take that go on with changed rules."""

from __future__ import annotations

from typing import NoReturn

from fusionscope.hlo import Module
from fusionscope.passes.context import Work
from fusionscope.system.forks import Forks

TOO_LONG = "too long"


class Copies:
    """The copies of a process that replays a pass, by the numbers of their changes.

    ``work`` is what the replay has done. No copy begins once all before it took what the replay
    had done until then, and none may take more; ``most`` is allowed to them in any case. None means
    no limits.
    """

    def __init__(self, jobs: int, most: int | None) -> None:
        self.work = Work()
        self._most = most
        self._begin = 0
        self._forks: Forks[int] = Forks(jobs)
        self._left_out: list[int] = []

    @property
    def current(self) -> int | None:
        """The number of the change that this process goes on with; None in the first process."""
        return self._forks.current

    def split(self, number: int) -> bool:
        """Copy this process, if that is within the limits. Return true in the copy."""
        most = None if self._most is None else max(self._most, self.work.amount)
        if most is not None and self._taken() >= most:
            self._left_out.append(number)
            return False
        is_copy = self._forks.split(number)
        if is_copy:
            self._begin = self.work.amount
            if most is not None:
                self.work.most = self._begin + most
        return is_copy

    def _taken(self) -> int:
        return sum(work for _, work in self._forks.finished.values())

    def end(self, result: Module | str | None) -> NoReturn:
        """End this copy, with a result."""
        self._forks.end((result, self.work.amount - self._begin))

    def fail(self) -> NoReturn:
        """End this copy without a result."""
        self._forks.fail()

    def results(self) -> dict[int, Module | str | None]:
        """Wait for all copies. Return their results, and ``TOO_LONG`` for those left out."""
        results = {number: result for number, (result, _) in self._forks.results().items()}
        return dict.fromkeys(self._left_out, TOO_LONG) | results
