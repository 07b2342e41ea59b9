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
    """The cost of one run of a final module.

    launches: launches in a run
    bytes_moved: bytes that these move, as shapes tell
    """

    launches: int
    bytes_moved: int


class Estimates(Form):
    """Estimated microseconds of a run.

    baseline: of the dump's final module
    variant: of the new final module
    """

    baseline: Annotated[TimeEstimate, At("0")]
    variant: Annotated[TimeEstimate, At("1")]


class Divergence(Form):
    """The point where the compiler took another module than it was given.

    computation: the computation of that place
    what: what differs there
    plan: the instruction that it was given
    compiler: the instruction that it took
    """

    computation: str
    what: str
    plan: Annotated[str, At("ours")]
    compiler: Annotated[str, At("theirs")]


class Variant(Form):
    """What was tried, and the module that the compiler made of it.

    name: ``replay``, ``changed``, ``flags``, or the name of the plan file
    plan: what was tried, in words
    holds: whether the final module matches the plan, the prediction and every request, and computes
        the same if it was run
    same_kernels: whether both final modules have the same kernels
    drops_donations: whether results no longer share the buffers of donated arguments, as by the
        hook of jaxlib 0.10
    problem: why the compiler did not finish; empty if it did
    baseline: of the dump's final module
    variant: of the new final module; null if the compiler did not get there
    estimates: times by the cost model of the GPU, or for a nominal CPU
    predicted: the new final module as ``explain`` predicts it with the same changes; null if it
        does not
    changed: pairs that are in one kernel in only one of the two modules
    unplanned: pairs whose outcome is not the planned one
    requests: the requests, each looked up in the final module: pairs allowed and forbidden, changed
        rules, passes left out, or the compiler's own plan
    divergence: where the compiler's module differs from the one that it was given
    measurement: of runs; null if nothing was run
    kernels: what profiles of further runs show; null if none was recorded
    not_profiled: why there is no profile; empty if there is, or if nothing was run
    plan_file: the file with which ``fusionscope.apply`` takes the program that was tried, in the
        folder of its dump; null if there is none
    capture: the new dump, with the fields of a capture; null if the plan did not get there
    """

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
    """``fusionscope rerun DUMP --format json``.

    module: name of the module
    not_run: why nothing was run; empty if it was, or if no run was requested
    rules: the rules that were changed and replayed, as in ``explain``; null
        if no plan is made of any
    variants: what was tried, in the order of the options
    """

    module: str
    not_run: str
    rules: RulesUsed | None
    variants: list[Variant]
