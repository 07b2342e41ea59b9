"""The times of a step against the size, one curve for each device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from math import exp, log

from fusionscope.grouping import grouped
from fusionscope.study.study import Row, StudyResult


@dataclass(frozen=True, slots=True)
class Point:
    """The microseconds of one unit of work. ``low`` and ``high`` are the ends of a 99 % confidence
    interval, the time itself if it is an estimate.
    """

    size: int
    time_us: float
    low_us: float
    high_us: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The times on one device, by size, measured or estimates; the least if ``is_least``."""

    target: str
    points: tuple[Point, ...]
    is_measured: bool
    is_least: bool


@dataclass(frozen=True, slots=True)
class Crossing:
    """The size from which on ``faster`` is ahead of ``slower``, and their time there. It lies
    between two sizes of the study: times are interpolated as powers of the size.
    """

    faster: str
    slower: str
    size: float
    time_us: float


@dataclass(frozen=True, slots=True)
class StepCurves:
    """Curves of one step, and where they cross. A curve of least times crosses none."""

    step: str
    curves: tuple[Curve, ...]
    crossings: tuple[Crossing, ...]


def curves_of(result: StudyResult) -> tuple[StepCurves, ...]:
    """Return the curves of each step that has times."""
    step_curves = []
    for number, step in enumerate(result.study.steps):
        rows = grouped((table.target, table.rows[number]) for table in result.tables)
        curves = [
            _curve(target, rows_of_target, result.study.work)
            for target, rows_of_target in rows.items()
        ]
        curves_known = tuple(curve for curve in curves if curve.points)
        crossings = [
            crossing
            for first, second in combinations(curves_known, 2)
            if not (first.is_least or second.is_least)
            for crossing in _crossings(first, second)
        ]
        if curves_known:
            step_curves.append(StepCurves(step.name, curves_known, tuple(crossings)))
    return tuple(step_curves)


def _curve(target: str, rows: list[Row], work: int) -> Curve:
    points = [point for row in rows if (point := _point(row, work)) is not None]
    return Curve(
        target,
        tuple(sorted(points, key=lambda point: point.size)),
        is_measured=any(row.race is not None for row in rows),
        is_least=any(row.estimate is not None and row.estimate.floor_launches for row in rows)
        and not any(row.race is not None for row in rows),
    )


def _point(row: Row, work: int) -> Point | None:
    """Return the time of a row, None if it has none above zero, which no logarithm has."""
    if row.race is not None and row.race.run_ns > 0:
        time, ratio = row.race.run_ns / 1_000 / work, row.race.ratio
        low, high = time * ratio.low / ratio.value, time * ratio.high / ratio.value
        return Point(row.size, time, low, high)
    if row.estimate is not None and row.estimate.microseconds > 0:
        time = row.estimate.microseconds / work
        return Point(row.size, time, time, time)
    return None


def _crossings(first: Curve, second: Curve) -> list[Crossing]:
    theirs = {point.size: point.time_us for point in second.points}
    both = [(p.size, p.time_us, theirs[p.size]) for p in first.points if p.size in theirs]
    crossings = []
    for (size, ours, their), (larger, ours_then, their_then) in pairwise(both):
        before, after = log(ours / their), log(ours_then / their_then)
        if before * after >= 0:
            continue
        share = before / (before - after)
        faster, slower = (first, second) if after < 0 else (second, first)
        crossings.append(
            Crossing(
                faster.target,
                slower.target,
                size * exp(share * log(larger / size)),
                ours * exp(share * log(ours_then / ours)),
            )
        )
    return crossings
