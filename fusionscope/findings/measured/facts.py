"""What a trace shows of a module."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class MeasuredCall(Facts, frozen=True):
    """A call, loop or branch that the trace shows as a whole.

    name: the instruction
    time_us: microseconds in a run, the median
    low_us: the lower quartile
    high_us: the upper quartile
    kernels: kernels in it, which the trace does not show
    """

    name: str
    time_us: float
    low_us: float
    high_us: float
    kernels: int


class RefusalWorth(Facts, frozen=True):
    """What fusing refused pairs that look alike may save.

    producer: the producer of the first of them
    consumer: its consumer
    source: the user's line, as ``file:line``
    count: similar pairs
    bytes_saved: bytes of all of them that fusing them need not move
    time_us: microseconds of these bytes at ``bandwidth``, and no more than the kernels take
    """

    producer: str
    consumer: str
    source: str | None
    count: int
    bytes_saved: int
    time_us: float


class Measured(Facts, frozen=True, kw_only=True):
    """What a trace shows of a module.

    runs: runs in the trace
    time_us: microseconds from the start of the first kernel of a run to the end of the last, the
        median of the runs
    low_us: the lower quartile of that
    high_us: the upper quartile
    kernels_us: the part of a run in which kernels or ``calls`` ran, the median
    between_us: the rest of a run, the median
    scale: what the times of a nominal CPU were multiplied by to fit most kernels; 1 for a GPU
    calls: calls that the trace shows as a whole, the slowest first
    bandwidth: bytes per microsecond of the kernel that moves most; null if none moves any
    refusals: refused pairs, similar ones once, those first that may save most
    """

    finding = "measured"

    runs: int
    time_us: float
    low_us: float
    high_us: float
    kernels_us: float
    between_us: float
    scale: float
    calls: tuple[MeasuredCall, ...]
    bandwidth: float | None
    refusals: tuple[RefusalWorth, ...]


class Fields(Facts, frozen=True):
    """
    measured: what a trace shows of the module (``--profile``, measured times); null
        without one
    """

    measured: Measured | None = None
