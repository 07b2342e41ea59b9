"""The number types of the compiler's own code: 32-bit floats and 64-bit integers.

Where the compiler does not check, a value that does not fit into an integer becomes the least
integer, as on x86 processors: a fusion that reads the same bytes over and over has a negative byte
count.
"""

from __future__ import annotations

import math
from ctypes import c_float, c_int64

_LIMIT = 2**63


def f32(number: float) -> float:
    """Return the closest 32-bit float."""
    return c_float(number).value


def add_product(total: float, factor: float, multiplier: float, *, rounds_product: bool) -> float:
    """Return ``total + one * other`` of 32-bit floats, rounded once, or after each of the two
    steps.
    """
    product = factor * multiplier  # exact: twice 24 bits
    return f32(total + (f32(product) if rounds_product else product))


def saturated(number: float) -> int:
    """Return the closest integer towards 0; 0 for NaN.

    Source: saturate_cast, as xla/service/hlo_cost_analysis.cc uses it.
    """
    return 0 if math.isnan(number) else int(max(-_LIMIT, min(number, _LIMIT - 1)))


def to_int64(number: float) -> int:
    """Return the integer part."""
    return int(number) if -_LIMIT <= number < _LIMIT else -_LIMIT


def round_to_int64(number: float) -> int:
    """Round half away from zero. Source: std::llround."""
    if not -_LIMIT <= number < _LIMIT:
        return -_LIMIT
    whole = int(number)
    return whole + (number - whole >= 0.5) - (whole - number >= 0.5)


def wrap_int64(number: int) -> int:
    """Return a sum or product of integers wrapped to 64 bits."""
    return c_int64(number).value
