"""The JSON output of ``fusionscope rerun``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fusionscope.capture.capture import Captured
from fusionscope.facts.result import TimeEstimate
from fusionscope.report.documents.explain import Figures
from fusionscope.report.documents.form import At, Form
from fusionscope.rerun.profiled import MeasuredKernels
from fusionscope.rerun.requests import Request
from fusionscope.rerun.rerun import RerunPair
from fusionscope.rerun.running import Measurement
from fusionscope.verify.agreement import RulesUsed


class Totals(Form):
    launches: int
    bytes_moved: int


class Estimates(Form):
    baseline: Annotated[TimeEstimate, At("0")]
    variant: Annotated[TimeEstimate, At("1")]


class Divergence(Form):
    """The point where the compiler took another module than it was given."""

    computation: str
    what: str
    plan: Annotated[str, At("ours")]
    compiler: Annotated[str, At("theirs")]


class Variant(Form):
    name: str
    plan: Annotated[str, At("rerun.plan")]
    holds: bool
    same_kernels: Annotated[bool, At("rerun.is_same")]
    drops_donations: Annotated[bool, At("rerun.drops_donations")]
    problem: Annotated[str, At("rerun.problem")]
    baseline: Annotated[Totals, At("rerun.baseline")]
    variant: Annotated[Totals | None, At("rerun.variant")]
    estimates: Annotated[Estimates | None, At("rerun.estimates")]
    predicted: Annotated[Figures | None, At("rerun.predicted")]
    changed: Annotated[list[RerunPair], At("rerun.changed")]
    unplanned: Annotated[list[RerunPair], At("rerun.unplanned")]
    requests: Annotated[list[Request], At("rerun.requests")]
    divergence: Annotated[Divergence | None, At("rerun.divergence")]
    measurement: Measurement | None
    kernels: MeasuredKernels | None
    not_profiled: str
    plan_file: Path | None
    capture: Annotated[Captured | None, At("rerun.captured")]


class Document(Form, tag_field="schema", tag="fusionscope.rerun/1"):
    module: str
    not_run: str
    rules: RulesUsed | None
    variants: list[Variant]
