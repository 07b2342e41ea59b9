"""The JSON output of ``fusionscope rules``; the result is a list of pages."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Example(Form):
    decided: Annotated[bool, At("is_decided")]
    producer: str
    consumer: str | None
    instead: str | None
    why: str
    text: str


class Rule(Form):
    id: str
    title: str
    pass_: Annotated[str, At("pass_name")]
    backend: str
    versions: list[str]
    what: str
    why: str | None
    message: str | None
    try_: Annotated[str | None, At("lever")]
    source: str
    legality: Annotated[bool, At("is_legality")]
    thresholds: dict[str, int]
    older_thresholds: dict[str, dict[str, int]]
    examples: list[Example]


class Document(Form, tag_field="schema", tag="fusionscope.rules/1"):
    rules: Annotated[list[Rule], At()]
