"""Whether figures are better than others."""

from __future__ import annotations

from fusionscope.facts.suggestions import Figures

_LEAST_GAIN = 0.001  # of the time of a module: a smaller gain counts as none


def why_not_better(
    before: Figures, after: Figures, backend: str | None = None, *, is_measured: bool = False
) -> str:
    """Return why a change is not worth it; nothing if it is: the time is noticeably less, and if it
    is an estimate, launches and bytes do not increase, or one of them decreases. With ``backend`` a
    TPU they may: its compiler estimates the code that it has made.

    If no time is known, launches or bytes have to be fewer, and neither may be more.
    """
    more = [
        name
        for name, was, now in (
            ("launches", before.launches, after.launches),
            ("bytes", before.bytes_moved, after.bytes_moved),
        )
        if now > was
    ]
    fewer = after.launches < before.launches or after.bytes_moved < before.bytes_moved
    if before.time_us is None or after.time_us is None:
        if more:
            return f"more {' and '.join(more)}"
        return "" if fewer else "no fewer launches or bytes"
    if after.time_us > before.time_us * (1 + _LEAST_GAIN):
        return "it takes longer"
    if after.time_us >= before.time_us * (1 - _LEAST_GAIN):
        return f"it saves less than {_LEAST_GAIN:.1%} of the time"
    if more and not fewer and not is_measured and backend != "tpu":
        return f"more {' and '.join(more)}, so the estimated time is not trusted"
    return ""
