"""The JSON output of ``fusionscope study``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fusionscope.facts.result import TimeEstimate
from fusionscope.report.documents.form import At, Form
from fusionscope.rerun.racing import Race
from fusionscope.study.study import Profiled, Refusal, SpeedUp


class Step(Form):
    """A version of the program.

    name: its name
    what: what it is
    paper: a published figure for it; empty if there is none
    of: the step whose program it is, with changed rules; null for a separate program
    """

    name: str
    what: str
    paper: str
    of: str | None


class Figures(Form):
    """The result of one step.

    step: name of the step
    dump: the folder of its dump, for ``explain``
    problem: why figures are missing; empty if none are
    kernels: kernels of the final module
    launches: launches in a run
    bytes_moved: bytes that these move, as shapes tell
    runs_known: false if the compiler does not know the trip count of a loop, or the kernel is in a
        branch: these count once
    compile_s: seconds of compiling it and dumping its stages; null if it did not finish
    estimate: of the compiler's cost model for GPUs; null for other devices
    race: the measurement; null if it was not run
    profiled: what a profile of further runs shows; null if it was not run
    refusal: the refused pair that costs most, control flow aside; null if there is none, or rules
        were changed
    boundaries: library calls that nothing is fused across
    """

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
    """The result of a step beside that of the first one.

    speed_up: how many times as fast as the first step: measured, else estimated; null if neither
        tells
    """

    inherited: ClassVar = At("0")
    speed_up: Annotated[SpeedUp | None, At("1")]


class Table(Form):
    """One device and size.

    target: the device
    size: the value of ``{n}``
    not_run: why nothing was run; empty if it was
    rows: the steps, in the same order
    """

    target: str
    size: int
    not_run: str
    rows: Annotated[list[Row], At(lambda table: [(row, table.speed_up(row)) for row in table.rows])]


class Document(Form, tag_field="schema", tag="fusionscope.study/1"):
    """``fusionscope study FOLDER --format json``.

    title: of the study
    work: how often one run does what is counted; the figures here are of whole runs
    paper: figures of others
    steps: the versions of the program, in the order of the study
    tables: one for each device and size
    """

    title: Annotated[str, At("study.title")]
    work: Annotated[int, At("study.work")]
    paper: Annotated[list[str], At("study.paper")]
    steps: Annotated[list[Step], At("study.steps")]
    tables: list[Table]
