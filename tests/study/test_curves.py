"""Curves of a study: their points are those of its tables, and where they cross."""

from __future__ import annotations

from math import isclose
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fusionscope.facts.result import TimeEstimate
from fusionscope.report.curves import to_svg
from fusionscope.report.html.page import study_page
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.racing import Race
from fusionscope.rules.changes import NO_CHANGES
from fusionscope.study.curves import curves_of
from fusionscope.study.study import Row, StudyResult, Table
from fusionscope.study.study_files import Study, StudyStep

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>document.title='ran'</script>"


def measured(size: int, time_us: float) -> Row:
    actual = Race(time_us * 1_000, Ratio(0.5, 0.4, 0.6), Ratio(1, 1, 1), 0.1, 9, Speed.FASTER)
    return Row(step="s", size=size, dump=Path(), kernels=1, race=actual)


def estimated(size: int, time_us: float, floor: int = 0) -> Row:
    estimate = TimeEstimate(time_us, floor)
    return Row(step="s", size=size, dump=Path(), kernels=1, estimate=estimate)


def result(rows: dict[str, list[Row]], work: int = 1, name: str = "s") -> StudyResult:
    step = StudyStep(
        name=name,
        what=HOSTILE,
        program="model.py:f",
        arguments=(),
        paper="",
        of=None,
        changes=NO_CHANGES,
    )
    study = Study(folder=Path(), title=HOSTILE, sizes=(), work=work, paper=(), steps=(step,))
    tables = [
        Table(target, row.size, (row,), "" if row.race else "absent")
        for target, local in rows.items()
        for row in local
    ]
    return StudyResult(study, tuple(tables))


def test_a_cpu_is_overtaken_where_the_lines_between_the_sizes_cross() -> None:
    # One time grows with the size, the other does not: they are equal at 8.
    rows = {
        "cpu": [measured(size, size) for size in (1, 4, 16)],
        "h100": [estimated(size, 8.0) for size in (1, 4, 16)],
    }
    (actual,) = curves_of(result(rows))
    assert [curve.is_measured for curve in actual.curves] == [True, False]
    (crossing,) = actual.crossings
    assert (crossing.faster, crossing.slower) == ("h100", "cpu")
    assert isclose(crossing.size, 8.0) and isclose(crossing.time_us, 8.0)


def test_points_are_times_of_a_unit_of_work_with_their_intervals() -> None:
    (actual,) = curves_of(result({"cpu": [measured(64, 100.0)]}, work=20))
    (point,) = actual.curves[0].points
    assert (point.size, point.time_us) == (64, 5.0)
    assert (point.low_us, point.high_us) == pytest.approx((4.0, 6.0))


def test_least_times_cross_nothing() -> None:
    rows = {
        "cpu": [measured(1, 1.0), measured(16, 16.0)],
        "h100": [estimated(1, 8.0, floor=1), estimated(16, 8.0, floor=1)],
    }
    (actual,) = curves_of(result(rows))
    assert actual.curves[1].is_least and not actual.crossings


def test_steps_without_times_have_no_curve() -> None:
    assert not curves_of(result({"cpu": [Row(step="s", size=1, dump=Path(), problem="no")]}))


def test_every_point_is_drawn_inside_the_picture() -> None:
    rows = {
        "cpu": [measured(1, 1e-3), measured(1000, 1e6)],
        HOSTILE: [estimated(1, 5.0), estimated(1000, 7.0)],
    }
    (actual,) = curves_of(result(rows))
    drawing = ElementTree.fromstring(to_svg(actual))
    points = [item for item in drawing.iter(f"{SVG}circle") if "class" not in item.attrib]
    assert len(points) == 4
    for item in drawing.iter(f"{SVG}circle"):
        assert 0 < float(item.attrib["cx"]) < float(drawing.attrib["width"])
        assert 0 < float(item.attrib["cy"]) < float(drawing.attrib["height"])
    assert not list(drawing.iter(f"{SVG}script"))


def test_the_page_has_a_figure_and_a_table_and_runs_nothing() -> None:
    page = study_page(result({"cpu": [measured(1, 1.0), measured(16, 16.0)]}))
    assert page.count("<svg") == 1 and page.count("<table>") == 2
    assert "<script" not in page and "&lt;script" in page
    assert "default-src 'none'" in page and "script-src" not in page
