"""The rules of a replay, and how far they agree with a dump: plain data."""

from __future__ import annotations

from msgspec import Struct

from fusionscope.dump.agreement import Agreement


class RulesUsed(Struct, frozen=True, kw_only=True, rename={"are_checked": "checked"}):
    """The rules of a replay, the reason for their choice, and their agreement with the dump.

    name: the name of the rules, as for ``--rules``
    version: what made the dump, in words: ``jaxlib 0.12``, ``jaxlib 0.10.2 or 0.11.0``, ``an
        unknown version of jaxlib``
    shown_by: the evidence for the version in the dump; null if there is none
    are_checked: whether the rules were checked against dumps of that version
    plans: plans of the replay, and how many have the kernels of the stage after their pass
    guessed: the passes whose reasons are guesses: all if the rules are not checked, else those
        whose plan does not agree
    """

    name: str
    version: str
    shown_by: str | None
    are_checked: bool
    plans: Agreement
    guessed: tuple[str, ...]
