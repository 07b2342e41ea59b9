"""The JSON output of ``fusionscope tune``."""

from __future__ import annotations

from fusionscope.report.documents.form import Form
from fusionscope.report.documents.rerun import MeasuredKernels, Measurement
from fusionscope.report.documents.rules_used import RulesUsed
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.running import Numbers
from fusionscope.tune.results import Ablation


class Attempt(Form):
    """One change, or several together, that was tried."""

    kind: str
    changes: str
    problem: str
    numbers: Numbers | None
    ratio: Ratio | None
    verdict: Speed | None
    is_same: bool
    compile_s: float | None
    estimated: float | None


class Best(Form):
    """The best plan, confirmed in a process of its own, or estimated."""

    words: str
    measurement: Measurement | None
    estimates_us: list[float] | None
    ablations: list[Ablation]
    compile_s: list[float] | None
    kernels: MeasuredKernels | None
    not_profiled: str


class Document(Form, tag_field="schema", tag="fusionscope.tune/1"):
    module: str
    left: int
    rules: RulesUsed | None
    attempts: list[Attempt]
    best: Best | None
