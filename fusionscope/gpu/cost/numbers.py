"""Numbers as the compiler's own code keeps them: 32-bit floats, and integers of 64 bits.

What does not fit into an integer becomes the least that there is, as x86 processors make it, where
the compiler does not look: a fusion that reads the same over and over has fewer bytes than none.
"""

from __future__ import annotations

import math
from ctypes import c_float, c_int64

_LIMIT = 2**63


def f32(number: float) -> float:
    """The closest 32-bit float."""
    return c_float(number).value


def add_product(total: float, one: float, other: float, *, rounds_product: bool) -> float:
    """``total + one * other`` of 32-bit floats, rounded once, or after each of the two steps."""
    product = one * other  # exact: twice 24 bits
    return f32(total + (f32(product) if rounds_product else product))


def saturated(number: float) -> int:
    """The closest integer towards 0, which 0 is to what is no number.

    Source: saturate_cast, as xla/service/hlo_cost_analysis.cc uses it.
    """
    return 0 if math.isnan(number) else int(max(-_LIMIT, min(number, _LIMIT - 1)))


def to_int64(number: float) -> int:
    """Without what is behind the point."""
    return int(number) if -_LIMIT <= number < _LIMIT else -_LIMIT


def round_to_int64(number: float) -> int:
    """Half away from zero. Source: std::llround."""
    if not -_LIMIT <= number < _LIMIT:
        return -_LIMIT
    whole = int(number)
    return whole + (number - whole >= 0.5) - (whole - number >= 0.5)


def wrap_int64(number: int) -> int:
    """What is left of a sum or product of integers that does not fit."""
    return c_int64(number).value
