"""The JSON output of ``fusionscope rerun --self-test``."""

from __future__ import annotations

from fusionscope.report.documents.form import Form


class Check(Form):
    name: str
    holds: bool | None
    details: list[str]


class Document(Form, tag_field="schema", tag="fusionscope.self-test/1"):
    device: str
    holds: bool
    checks: list[Check]
