"""The JSON output of ``fusionscope tune``."""

from __future__ import annotations

from fusionscope.report.documents.form import Form
from fusionscope.report.documents.rerun import Measurement
from fusionscope.report.documents.rules_used import RulesUsed


class Attempt(Form):
    """One change that was tried."""

    changes: str
    is_better: bool
    problem: str
    measurement: Measurement | None


class Document(Form, tag_field="schema", tag="fusionscope.tune/1"):
    module: str
    left: int
    rules: RulesUsed | None
    attempts: list[Attempt]
    best: Attempt | None
