"""The JSON output of ``fusionscope verify DUMP --drift``."""

from __future__ import annotations

from fusionscope.experiments.drift import Agreement
from fusionscope.report.documents.form import Form
from fusionscope.verify.thresholds import FittingThreshold


class Pair(Form):
    pass_name: str
    book: str
    producer: str
    consumer: str
    outcome: str
    replayed: str
    around: str
    programs: int
    differing: int
    agreements: list[Agreement]
    thresholds: list[FittingThreshold]
    problem: str


class Document(Form, tag_field="schema", tag="fusionscope.drift/1"):
    module: str
    rules: str
    compiler: str
    matched: int
    compiled: int
    seconds: float
    pairs: list[Pair]
