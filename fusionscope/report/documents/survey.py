"""The JSON output of ``fusionscope survey``."""

from __future__ import annotations

from fusionscope.report.documents.form import Form


class Document(Form, tag_field="schema", tag="fusionscope.survey/1"):
    directory: str
    dumps: int
    earlier: int
    modules: int
    analysed: int
    unreadable: list[str]
    seconds: float
