"""The JSON output of ``fusionscope explain DUMP --experiment``."""

from __future__ import annotations

from fusionscope.experiments.program import Answer
from fusionscope.report.documents.form import Form


class Question(Form):
    factor: str
    what: str
    before: str
    after: str
    answer: Answer
    program: str


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
    questions: list[Question]
    flips: list[Question]


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
