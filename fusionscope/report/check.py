"""The result of a check as JSON, Markdown, and on a terminal."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fusionscope.report import rules_used
from fusionscope.report.text import cell, plural, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.check.checking import Checked


def summary_of(found: Checked) -> str:
    missed = sum(not each.is_met for each in found.outcomes)
    if not missed:
        return f"{plural(len(found.outcomes), 'expectation')} met"
    return f"{missed} of {plural(len(found.outcomes), 'expectation')} not met"


def print_check(found: Checked, console: Console, top: int) -> None:
    from rich.text import Text

    for words in _rules_lines(found):
        console.print(Text(safe(words), style="dim"))
    for outcome in found.outcomes:
        style, mark = ("green", "met    ") if outcome.is_met else ("red", "NOT MET")
        line = Text(f"{mark}  ", style=style)
        line.append(safe(outcome.expectation.title))
        console.print(line)
        if outcome.expectation.message and not outcome.is_met:
            console.print(Text(f"         {safe(str(outcome.expectation))}", style="dim"))
        for violation in outcome.violations[:top]:
            where = f"{safe(violation.module)}: " if violation.module else ""
            console.print(Text(f"         {where}{safe(str(violation))}"))
            if violation.source:
                console.print(Text(f"           at {safe(violation.source)}", style="dim"))
        if len(outcome.violations) > top:
            rest = len(outcome.violations) - top
            console.print(Text(f"         … and {rest} more: --top N", style="dim"))
        for note in outcome.notes:
            console.print(Text(f"         changed: {safe(note)}", style="dim"))
    console.print(Text(summary_of(found), style="bold green" if found.is_met else "bold red"))


def _rules_lines(found: Checked) -> list[str]:
    """Return the rules that gave reasons, with the modules for which the text is the same."""
    modules: dict[str, list[str]] = defaultdict(list)
    for _, module, rules in found.rules:
        modules[f"{rules.version}; {rules_used.in_words(rules)}"].append(module)
    return [f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in modules.items()]


def to_markdown(found: Checked) -> str:
    lines = [f"## fusionscope check: {summary_of(found)}", ""]
    for line in _rules_lines(found):
        lines += [cell(line), ""]
    lines += ["| | expectation | violations |", "|---|---|---|"]
    for outcome in found.outcomes:
        mark = "✅" if outcome.is_met else "❌"
        what = "<br>".join(cell(str(each)) for each in outcome.violations)
        lines.append(f"| {mark} | {cell(outcome.expectation.title)} | {what} |")
    return "\n".join(lines) + "\n"
