"""The rules of a replay, and their agreement with the dump, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.words.text import plural, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.verify.agreement import RulesUsed


def style(rules: RulesUsed) -> str:
    return "yellow" if rules.guessed else "dim"


def in_words(rules: RulesUsed) -> str:
    """Return text such as *the rules cpu-0.12 agree with this dump (2 of 2 plans); …*."""
    figures = f"{rules.plans_agreeing:,} of {plural(rules.plans, 'plan')}"
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
    shown_by = rules.shown_by
    shows = f"recognised by: {shown_by}" if shown_by else "nothing in the dump shows its version"
    return f"the rules {rules.name} {trust}; {shows}"


def print_rules(rules: RulesUsed | None, console: Console) -> None:
    """Print the compiler of the dump, and the rules, if any were used."""
    from rich.padding import Padding
    from rich.text import Text

    if rules is not None:
        words = Text(safe(f"{rules.version}; {in_words(rules)}"), style=style(rules))
        console.print(Padding(words, (0, 0, 0, 2)))
