"""The JSON output of ``fusionscope capture``; the result is a list of captures."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Capture(Form):
    """A new dump."""

    directory: str
    program: str
    target: str
    flags: list[str]
    program_flags: str
    notes: list[str]
    arguments: list[str]
    python: str
    versions: dict[str, str]
    problem: str
    compile_s: float | None
    profile: str | None


class Document(Form, tag_field="schema", tag="fusionscope.capture/1"):
    captures: Annotated[list[Capture], At()]
