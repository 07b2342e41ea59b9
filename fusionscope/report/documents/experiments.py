"""The JSON output of ``fusionscope experiment DUMP``."""

from __future__ import annotations

from fusionscope.experiments.experiment import Asked, Threshold
from fusionscope.report.documents.form import Form


class Experiment(Form):
    """``flips`` are the questions that the compiler answered with ``fused``."""

    producer: str
    consumer: str
    reproduced: bool
    around: str
    program: str
    cuts: int
    problem: str
    cause: str | None
    threshold: Threshold | None
    questions: list[Asked]
    flips: list[Asked]


class Pair(Form):
    reason: str
    bytes_saved: int
    experiment: Experiment


class Document(Form, tag_field="schema", tag="fusionscope.experiments/1"):
    module: str
    compiler: str
    matched: int
    asked: int
    compiled: int
    seconds: float
    pairs: list[Pair]
