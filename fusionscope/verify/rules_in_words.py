"""The rules of a replay, and their agreement with the dump, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.section import Line, Tone, line
from fusionscope.words.text import plural

if TYPE_CHECKING:
    from fusionscope.verify.agreement import RulesUsed


def tone(rules: RulesUsed) -> Tone:
    return Tone.WARNING if rules.guessed else Tone.QUIET


def in_words(rules: RulesUsed) -> str:
    """Return text such as *the rules cpu-0.12 agree with this dump (2 of 2 plans); …*."""
    figures = f"{rules.plans.agreeing:,} of {plural(rules.plans.compared, 'plan')}"
    if not rules.guessed:
        trust = f"agree with this dump ({figures})"
    elif not rules.are_checked:
        trust = (
            "were not checked against this version, so what they say is a guess "
            f"({figures} agree with this dump)"
        )
    else:
        trust = (
            f"do not agree with this dump ({figures}), so what they say about "
            f"{', '.join(rules.guessed)} is a guess"
        )
    shows = "nothing in the dump shows its version"
    if rules.shown_by is not None:
        shows = f"recognised by: {rules.shown_by}"
    return f"the rules {rules.name} {trust}; {shows}"


def rules_line(rules: RulesUsed | None) -> Iterator[Line]:
    """Yield the compiler of the dump with the rules, if any were used."""
    if rules is not None:
        yield line(f"{rules.version}; {in_words(rules)}", tone(rules))
