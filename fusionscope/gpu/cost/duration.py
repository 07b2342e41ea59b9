"""Times in the representation of the GPU cost model: whole ticks of 0.25 ns, or
infinite.

They round as absl::Duration does; sums and differences of ticks are exact.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from fusionscope.gpu.cost.numbers import f32, round_to_int64

Duration: TypeAlias = float
"""A whole number of ticks, an int, or INFINITE."""

INFINITE: Final = math.inf
TICKS_PER_NANOSECOND: Final = 4
TICKS_PER_MICROSECOND: Final = 4_000
TICKS_PER_SECOND: Final = 4_000_000_000
_LONGEST = 2.0**63  # seconds; longer times are infinite


def from_seconds(seconds: float) -> Duration:
    """Convert seconds. Source: absl::Seconds of a floating point number."""
    if seconds >= _LONGEST:
        return INFINITE
    whole = int(seconds)
    return whole * TICKS_PER_SECOND + round_to_int64((seconds - whole) * TICKS_PER_SECOND)


def from_nanoseconds(nanoseconds: float) -> Duration:
    """Convert nanoseconds. Source: absl::Nanoseconds of a floating point number."""
    return scaled(TICKS_PER_NANOSECOND, nanoseconds)


def scaled(duration: Duration, factor: float) -> Duration:
    """Scale a duration. Source: absl::Duration times a floating point number.

    Whole seconds and the ticks above them are scaled separately, and the rest is rounded once.
    """
    if duration == INFINITE or factor == math.inf:
        return INFINITE
    seconds, ticks = divmod(int(duration), TICKS_PER_SECOND)
    fraction, whole = math.modf(seconds * factor)
    fraction, more = math.modf(ticks * factor / TICKS_PER_SECOND + fraction)
    if whole + more >= _LONGEST:
        return INFINITE
    return int(whole + more) * TICKS_PER_SECOND + round_to_int64(fraction * TICKS_PER_SECOND)


def microseconds(duration: Duration) -> float:
    """Return microseconds as the compiler's record prints them, a 32-bit float."""
    return f32(duration / TICKS_PER_MICROSECOND)


def written(duration: Duration) -> str:
    return f"{microseconds(duration):.6g} us"
