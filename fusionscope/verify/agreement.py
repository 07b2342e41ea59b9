"""The rules of a replay, and how far they agree with a dump: plain data."""

from __future__ import annotations

from msgspec import Struct

from fusionscope.dump.agreement import Agreement


class RulesUsed(Struct, frozen=True, kw_only=True, rename={"are_checked": "checked"}):
    """The rules of a replay, the reason for their choice, and their agreement with the dump:
    ``plans`` that agree have the kernels of the stage after the pass.

    ``name`` is that of the compiler whose rules these are. ``version``, ``shown_by`` and
    ``are_checked`` are as in ``versions.choice.ChosenCompiler``. ``guessed`` are the passes whose
    reasons are guesses: all if the rules were not checked against the version that made the dump,
    or else those whose plan does not agree.
    """

    name: str
    version: str
    shown_by: str | None
    are_checked: bool
    plans: Agreement
    guessed: tuple[str, ...]
