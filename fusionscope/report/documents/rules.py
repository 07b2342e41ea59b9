"""The JSON output of ``fusionscope rules``; the result is a list of pages."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Example(Form):
    decided: Annotated[bool, At("is_decided")]
    allowed: Annotated[bool, At("is_allowed")]
    producer: str
    consumer: str | None
    instead: str | None
    why: str
    text: str


class Rule(Form):
    id: str
    title: Annotated[str, At("page.title")]
    pass_: Annotated[str, At("pass_name")]
    backend: str
    versions: list[str]
    what: Annotated[str, At("page.what")]
    why: Annotated[str | None, At("page.why")]
    message: str | None
    try_: Annotated[str | None, At("page.lever")]
    source: Annotated[str, At("page.source")]
    accuracy: str | None
    legality: Annotated[bool, At("is_legality")]
    thresholds: dict[str, int]
    older_thresholds: dict[str, dict[str, int]]
    examples: Annotated[list[Example], At("page.examples")]


class Document(Form, tag_field="schema", tag="fusionscope.rules/1"):
    rules: Annotated[list[Rule], At()]
