"""The JSON output of ``fusionscope survey report``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form
from fusionscope.report.documents.rules_used import Agreement


class Counts(Form):
    dumps: int
    modules: int
    contents: int
    pairs: int
    not_fused: int
    refused_bytes: int
    unreadable: int
    first_day: str | None
    last_day: str | None


class Rule(Form):
    reason: str
    title: str | None
    pairs: int
    refused_bytes: int
    dumps: int
    contents: int
    since: str | None


class Place(Form):
    place: str
    pairs: int
    refused_bytes: int
    dumps: int
    reason: str


class Version(Form):
    jaxlib: str
    device: str
    dumps: int
    modules: int
    pairs: int
    not_fused: int
    refused_bytes: int
    bytes_moved: int
    plans: Annotated[Agreement, At(lambda line: (line.plans, line.plans_agreeing))]


class Suggestion(Form):
    change: str
    kind: str
    evidence: str
    dumps: int
    contents: int
    time_saved_us: float | None
    bytes_saved: int | None
    launches_saved: int | None


class Pass(Form):
    pass_: Annotated[str, At("pass_name")]
    rules: str
    runs: int
    identical: int | None
    pairs: Annotated[Agreement, At(lambda line: (line.pairs, line.pairs_agreeing))]
    decisions: Annotated[Agreement, At(lambda line: (line.decisions, line.decisions_agreeing))]


class WorseProgram(Form):
    program: str
    device: str
    jaxlib_before: str
    jaxlib: str
    refused_before: float
    refused: float
    time_before_us: float | None
    time_us: float | None
    launches_before: float
    launches: float
    reason: str | None


class Worse(Form):
    before: str
    after: str
    programs: int
    worse: int
    lines: list[WorseProgram]


class Document(Form, tag_field="schema", tag="fusionscope.survey-report/1"):
    directory: str
    counts: Counts
    rules: list[Rule]
    scopes: list[Place]
    files: list[Place]
    versions: list[Version]
    suggestions: list[Suggestion]
    agreement: list[Pass]
    worse: Worse | None
