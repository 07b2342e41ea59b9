"""Forms that several commands share."""

from __future__ import annotations

from typing import Annotated

from fusionscope.explain.result import Operation
from fusionscope.history.changes import ChangeKind
from fusionscope.report.documents.form import At, Form


class Agreement(Form):
    """How many were compared, and on how many both agree: a pair of numbers."""

    compared: Annotated[int, At("0")]
    agreeing: Annotated[int, At("1")]


class RulesUsed(Form):
    """The rules of a replay."""

    name: Annotated[str, At("chosen.name")]
    version: Annotated[str, At("chosen.version")]
    shown_by: Annotated[str | None, At("chosen.shown_by")]
    checked: Annotated[bool, At("chosen.are_checked")]
    plans: Annotated[Agreement, At(lambda rules: (rules.plans, rules.plans_agreeing))]
    guessed: list[str]


class FusionStep(Form):
    """A recorded step."""

    producer: str
    consumer: str
    fusion: str
    fused_us: Annotated[float | None, At("estimate.fused_us")]
    unfused_us: Annotated[float | None, At("estimate.unfused_us")]
    benefit_us: Annotated[float | None, At("estimate.benefit_us")]


class FusionChange(Form):
    """A change of fusions."""

    kind: ChangeKind
    text: str
    before: list[Operation]
    after: list[Operation]
    gained: list[Operation]
    lost: list[Operation]
    emitters: list[str] | None
    count: int
