"""The JSON output of ``fusionscope survey report``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form
from fusionscope.report.documents.rules_used import Agreement
from fusionscope.survey.fleet import Counts, PlaceLine, RuleLine, SuggestionLine, Worse


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


class Pass(Form):
    pass_: Annotated[str, At("pass_name")]
    rules: str
    runs: int
    identical: int | None
    pairs: Annotated[Agreement, At(lambda line: (line.pairs, line.pairs_agreeing))]
    decisions: Annotated[Agreement, At(lambda line: (line.decisions, line.decisions_agreeing))]


class Document(Form, tag_field="schema", tag="fusionscope.survey-report/1"):
    directory: str
    counts: Counts
    rules: list[RuleLine]
    scopes: list[PlaceLine]
    files: list[PlaceLine]
    versions: list[Version]
    suggestions: list[SuggestionLine]
    agreement: list[Pass]
    worse: Worse | None
