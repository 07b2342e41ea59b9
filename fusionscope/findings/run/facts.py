"""What a run took on this machine, and the least that it could take."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class Run(Facts, frozen=True, kw_only=True):
    """A run of the program on this machine, and its bound by what it must read and write.

    time_us: microseconds of a run, the lower decile of ``runs``
    runs: runs that were timed
    at_best_us: microseconds in which ``at_best_bytes`` pass at ``bandwidth``
    at_best_bytes: bytes of parameters and results, each once, of each the part that is needed, at
        the width in which it is needed
    bandwidth: bytes per microsecond, the most that a probe moved in arrays of that size with all
        processors
    """

    finding = "run"

    time_us: float
    runs: int
    at_best_us: float
    at_best_bytes: float
    bandwidth: float


class Fields(Facts, frozen=True):
    """
    run: what a run took on this machine, and the least that it could take; null unless a
        program for CPUs was run (``--compile``), and what it reads is known
    """

    run: Run | None = None
