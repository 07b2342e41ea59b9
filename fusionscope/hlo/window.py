"""The window of a convolution or reduce-window."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.errors import UnusableInput, shorten

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
    """``{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…}`` as data.

    Raises ``UnusableInput`` where it is not of this form.
    """
    try:
        return tuple(_dimensions(text))
    except (IndexError, ValueError):
        raise UnusableInput(
            f"found window={shorten(text)}, expected one such as {{size=3x3 pad=1_1x1_1}}"
        ) from None


def _dimensions(text: str) -> Iterator[WindowDimension]:
    written = {key: value.split("x") for key, value in _FIELD.findall(text)}
    for index, size in enumerate(written.get("size", ())):

        def field(key: str, default: str, at: int = index) -> str:
            return written[key][at] if key in written else default

        low, _, high = field("pad", "0_0").partition("_")
        stride = int(field("stride", "1"))
        if stride < 1:
            raise ValueError
        yield WindowDimension(
            int(size),
            stride,
            int(low),
            int(high),
            int(field("lhs_dilate", "1")),
            int(field("rhs_dilate", "1")),
            field("rhs_reversal", "0") == "1",
        )
