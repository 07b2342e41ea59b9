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

    name: str
    version: str
    shown_by: str | None
    checked: Annotated[bool, At("are_checked")]
    plans: Annotated[Agreement, At(lambda rules: (rules.plans, rules.plans_agreeing))]
    guessed: list[str]
