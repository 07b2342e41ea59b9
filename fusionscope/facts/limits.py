"""What limits the time of kernels, in the model of the time: launches, memory, or computing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from fusionscope.facts.result import Limit


@dataclass(frozen=True, slots=True)
class Limits:
    """Microseconds of kernels that start them, that read and write, that compute, that the calls
    of libraries take at least, and those of kernels of which none of these explains half.

    A kernel reads, writes and computes at once: the longer one counts.
    """

    launches: float = 0.0
    memory: float = 0.0
    compute: float = 0.0
    library: float = 0.0
    unexplained: float = 0.0

    @property
    def total(self) -> float:
        return self.launches + self.memory + self.compute + self.library + self.unexplained

    @property
    def limited_by(self) -> Limit:
        for limit in Limit:
            if limit is not Limit.MIXED and self.share(limit) > 0.5:
                return limit
        return Limit.MIXED

    def share(self, limit: Limit) -> float:
        """Return a part of the total, from 0 to 1."""
        part: float = getattr(self, limit)
        return part / self.total if self.total else 0.0


def sum_of_limits(limits: Iterable[Limits | None]) -> Limits | None:
    """Return the sum; None if one is unknown, or there is none."""
    all_limits = list(limits)
    rows = [row for row in all_limits if row is not None]
    if not rows or len(rows) < len(all_limits):
        return None
    return Limits(
        fsum(row.launches for row in rows),
        fsum(row.memory for row in rows),
        fsum(row.compute for row in rows),
        fsum(row.library for row in rows),
        fsum(row.unexplained for row in rows),
    )
