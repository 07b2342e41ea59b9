"""The JSON output of ``fusionscope study``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fusionscope.facts.result import TimeEstimate
from fusionscope.report.documents.form import At, Form
from fusionscope.rerun.racing import Race
from fusionscope.study.study import Profiled, Refusal, SpeedUp


class Step(Form):
    name: str
    what: str
    paper: str
    of: str | None


class Figures(Form):
    """The result of one step."""

    step: str
    dump: str
    problem: str
    kernels: int
    launches: int
    bytes_moved: int
    runs_known: bool
    compile_s: float | None
    estimate: TimeEstimate | None
    race: Race | None
    profiled: Profiled | None
    refusal: Refusal | None
    boundaries: list[str]


class Row(Figures):
    inherited: ClassVar = At("0")
    speed_up: Annotated[SpeedUp | None, At("1")]


class Table(Form):
    """One device and size."""

    target: str
    size: int
    not_run: str
    rows: Annotated[list[Row], At(lambda table: [(row, table.speed_up(row)) for row in table.rows])]


class Document(Form, tag_field="schema", tag="fusionscope.study/1"):
    title: Annotated[str, At("study.title")]
    work: Annotated[int, At("study.work")]
    paper: Annotated[list[str], At("study.paper")]
    steps: Annotated[list[Step], At("study.steps")]
    tables: list[Table]
