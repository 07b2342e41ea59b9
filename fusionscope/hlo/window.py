"""The window of a convolution or reduce-window."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from fusionscope.errors import UnusableInput, shorten
from fusionscope.hlo.attributes import read_value

_TOO_LARGE = 10**18
# The value of an omitted field, and the least value that a window can have.
_FIELDS = {
    "size": (0, 0),
    "stride": (1, 1),
    "lhs_dilate": (1, 1),
    "rhs_dilate": (1, 1),
    "rhs_reversal": (0, 0),
}


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
    """Return ``{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…}`` as
    data.

    Raises ``UnusableInput`` if the text has another form, if fields differ in their number of
    dimensions, or for values that no window has, such as a stride of 0.
    """
    return window_dimensions(read_value("window", text or "{}"))


def window_dimensions(fields: dict[str, Any]) -> tuple[WindowDimension, ...]:
    """Return the same from the fields that the grammar reads. Raises ``UnusableInput`` likewise."""
    rank = len(fields.get("size", ()))
    for key, field in fields.items():
        if len(field) != rank:
            raise UnusableInput(
                f"a window of {len(field)} dimensions in {key}=, expected {rank} as in size="
            )
        least = -_TOO_LARGE if key == "pad" else _FIELDS[key][1]
        for number in chain.from_iterable(field) if key == "pad" else field:
            if not least <= number < _TOO_LARGE:
                raise UnusableInput(
                    f"a window with {key}={shorten(str(number))}, expected at least {least} and "
                    "less than 10^18"
                )
    columns = [fields.get(key, (default,) * rank) for key, (default, _) in _FIELDS.items()]
    pads = fields.get("pad", ((0, 0),) * rank)
    return tuple(
        WindowDimension(size, stride, low, high, base, window, bool(is_reversed))
        for (low, high), size, stride, base, window, is_reversed in zip(pads, *columns, strict=True)
    )
