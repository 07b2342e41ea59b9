"""The part on replayed rules in the JSON output of several commands."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Agreement(Form):
    """The number of compared items, and the number on which both agree."""

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
