"""The window of a convolution or reduce-window."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIELD = re.compile(r"(\w+)=([\w\-]+)")


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension: size, stride and dilations in elements, padding below and above."""

    size: int
    stride: int
    low: int
    high: int
    base_dilation: int
    window_dilation: int
    is_reversed: bool


def read_window(text: str) -> tuple[WindowDimension, ...]:
    """``{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…}`` as data."""
    written = {key: value.split("x") for key, value in _FIELD.findall(text)}
    found = []
    for index, size in enumerate(written.get("size", ())):

        def field(key: str, default: str, at: int = index) -> str:
            return written[key][at] if key in written else default

        low, _, high = field("pad", "0_0").partition("_")
        found.append(
            WindowDimension(
                int(size),
                int(field("stride", "1")),
                int(low),
                int(high),
                int(field("lhs_dilate", "1")),
                int(field("rhs_dilate", "1")),
                field("rhs_reversal", "0") == "1",
            )
        )
    return tuple(found)
