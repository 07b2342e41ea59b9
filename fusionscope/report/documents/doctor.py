"""The JSON output of ``fusionscope doctor``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Finding(Form):
    name: str
    state: str
    found: str
    advice: str | None


class Compiler(Form):
    """The Python that compiles."""

    path: str
    python: str
    versions: dict[str, str]


class Document(Form, tag_field="schema", tag="fusionscope.doctor/1"):
    fusionscope: str
    python: str
    works: bool
    rules: list[str]
    compiler: Annotated[Compiler, At("installation")]
    findings: list[Finding]
