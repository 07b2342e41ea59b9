"""Curves of times against sizes as SVG, both on logarithmic scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from fusionscope.study.curves import Curve, Point, StepCurves
from fusionscope.words.text import duration, safe

_WIDE, _HIGH = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 120, 16, 40
_DASHES = ("7 4", "2 3", "9 3 2 3")  # of estimates


@dataclass(frozen=True, slots=True)
class _Scale:
    """Positions in pixels for the logarithms of values."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


def to_svg(curves: StepCurves) -> str:
    """Return the curves of one step. Without a style sheet they are black."""
    points = [point for curve in curves.curves for point in curve.points]
    sizes = sorted({point.size for point in points})
    x = _scale([float(size) for size in sizes], _LEFT, _WIDE - _RIGHT)
    times = [time for point in points for time in (point.low_us, point.high_us)]
    y = _scale(times, _HIGH - _BOTTOM, _TOP, whole=True)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curves" viewBox="0 0 {_WIDE} {_HIGH}" '
        f'width="{_WIDE}" height="{_HIGH}" role="img" aria-label="{_text(_words(curves))}">',
        *_axes(sizes, x, y),
    ]
    lowest = 0.0
    for curve in sorted(curves.curves, key=lambda curve_drawn: -curve_drawn.points[-1].time_us):
        number = curves.curves.index(curve)
        lowest = max(y(curve.points[-1].time_us) + 4, lowest + 14)
        lines += _curve(curve, number, x, y, lowest)
    for crossing in curves.crossings:
        place = f'cx="{x(crossing.size):.1f}" cy="{y(crossing.time_us):.1f}"'
        words = f"{crossing.faster} is ahead from about {crossing.size:,.0f}"
        lines.append(
            f'<circle class="crossing" {place} r="7"><title>{_text(words)}</title></circle>'
        )
    return "\n".join([*lines, "</svg>"])


def _scale(values: Sequence[float], first: float, last: float, *, whole: bool = False) -> _Scale:
    low, high = log10(min(values)), log10(max(values))
    if whole:  # decades
        low, high = floor(low), ceil(high)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _Scale(low, high, first, last)


def _axes(sizes: Sequence[int], x: _Scale, y: _Scale) -> Iterator[str]:
    bottom, right = _HIGH - _BOTTOM, _WIDE - _RIGHT
    for decade in range(ceil(y.low), floor(y.high) + 1):
        at = y(10.0**decade)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f} H{right}"/>'
        time = duration(10.0**decade)
        yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{time}</text>'
    for size in sizes:
        at = x(float(size))
        yield f'<path class="grid" d="M{at:.1f} {bottom} v5"/>'
        yield f'<text x="{at:.1f}" y="{bottom + 20}" text-anchor="middle">{size:,}</text>'


def _curve(curve: Curve, number: int, x: _Scale, y: _Scale, label: float) -> Iterator[str]:
    path = " ".join(f"{x(point.size):.1f},{y(point.time_us):.1f}" for point in curve.points)
    dash = "" if curve.is_measured else _DASHES[number % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    color = f"c{number % 4}"
    yield (
        f'<polyline class="curve {color}" fill="none" stroke="currentColor"{dashed} '
        f'points="{path}"/>'
    )
    for point in curve.points:
        yield _mark(point, curve, color, x, y)
    kind = "" if curve.is_measured else " (at least)" if curve.is_least else " (estimated)"
    end = x(curve.points[-1].size) + 10
    words = _text(curve.target + kind)
    yield f'<text class="{color}" x="{end:.1f}" y="{label:.1f}">{words}</text>'


def _mark(point: Point, curve: Curve, color: str, x: _Scale, y: _Scale) -> str:
    """Return a point with its interval."""
    across = x(point.size)
    words = f"{curve.target}, size {point.size:,}: {duration(point.time_us)}"
    interval = ""
    if point.high_us > point.low_us:
        words += f", {duration(point.low_us)} to {duration(point.high_us)}"
        interval = (
            f'<path stroke="currentColor" d="M{across:.1f} {y(point.low_us):.1f} '
            f'V{y(point.high_us):.1f}"/>'
        )
    return (
        f'<g class="{color}"><title>{_text(words)}</title>{interval}'
        f'<circle cx="{across:.1f}" cy="{y(point.time_us):.1f}" r="3" fill="currentColor"/></g>'
    )


def _words(curves: StepCurves) -> str:
    devices = ", ".join(curve.target for curve in curves.curves)
    return f"time of {curves.step} against the size, on {devices}"


def _text(text: str) -> str:
    return escape(safe(text))
