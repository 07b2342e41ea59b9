"""The result of a check on a terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from fusionscope.check.record import figures_of
from fusionscope.verify import rules_in_words as rules_used
from fusionscope.words.text import plural, print_hidden, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.check.checking import Checked, Compared, Verdict
    from fusionscope.check.updating import Updated
    from fusionscope.report.places import Repository


def summary_of(checked: Checked) -> str:
    missed = sum(not outcome.is_met for outcome in checked.outcomes)
    if not missed:
        return f"{plural(len(checked.outcomes), 'expectation')} met"
    return f"{missed} of {plural(len(checked.outcomes), 'expectation')} not met"


def print_check(checked: Checked, console: Console, top: int, repository: Repository) -> None:
    from rich.text import Text

    for words in rules_lines(checked):
        console.print(Text(safe(words), style="dim"))
    for outcome in checked.outcomes:
        if not is_in_table(outcome, checked):
            _print_verdict(outcome, console, top, repository)
    _print_matrix(checked, console)
    console.print(Text(summary_of(checked), style="bold green" if checked.is_met else "bold red"))


def is_in_table(outcome: Verdict, checked: Checked) -> bool:
    """Return whether the table of a matrix says all there is to say."""
    is_plain = outcome.is_met and not (outcome.notes or outcome.allowed)
    return is_plain and outcome.expectation.key == "baseline" and bool(checked.matrix)


def _print_verdict(outcome: Verdict, console: Console, top: int, repository: Repository) -> None:
    from rich.text import Text

    style, mark = ("green", "met    ") if outcome.is_met else ("red", "NOT MET")
    line = Text(f"{mark}  ", style=style)
    line.append(safe(outcome.expectation.title))
    console.print(line)
    if outcome.expectation.message and not outcome.is_met:
        console.print(Text(f"         {safe(str(outcome.expectation))}", style="dim"))
    for violation in outcome.violations[:top]:
        is_named = violation.module in ("", outcome.expectation.identity)
        where = "" if is_named else f"{safe(violation.module)}: "
        console.print(Text(f"         {where}{safe(str(violation))}"))
        if violation.source:
            place = repository.shown(violation.source)
            console.print(Text(f"           at {safe(place)}", style="dim"))
    if len(outcome.violations) > top:
        hidden = len(outcome.violations) - top
        console.print(Text(f"         … and {hidden} more: --top N", style="dim"))
    for violation, allowance in outcome.allowed:
        words = f"allowed until {allowance.until}: {allowance.why}: {violation}"
        console.print(Text(f"         {safe(words)}", style="dim"))
    for note in outcome.notes:
        console.print(Text(f"         changed: {safe(note)}", style="dim"))


def print_update(updated: Updated, console: Console, top: int) -> None:
    """Print what a new baseline accepts."""
    from rich.text import Text

    for outcome in updated.accepted:
        console.print(Text(f"accepted  {safe(outcome.expectation.identity)}"))
        lines = [str(violation) for violation in outcome.violations]
        lines += [f"changed: {note}" for note in outcome.notes]
        for line in lines[:top]:
            console.print(Text(f"          {safe(line)}"))
        print_hidden(console, 10, len(lines), top, "change")
    for mark, modules in (("new      ", updated.new), ("removed  ", updated.removed)):
        for name in modules:
            why = "" if mark.startswith("new") else ": no dump has it"
            console.print(Text(f"{mark} {safe(name)}{why}"))
    if updated.kept:
        console.print(Text(f"kept      {plural(len(updated.kept), 'other module')}", style="dim"))
    if updated.unchanged:
        console.print(Text(f"unchanged {plural(updated.unchanged, 'module')}", style="dim"))


def _print_matrix(checked: Checked, console: Console) -> None:
    """Print a table of programs and targets."""
    from rich.table import Table
    from rich.text import Text

    if not checked.matrix:
        return
    cells = {(comparison.program, comparison.target): comparison for comparison in checked.compared}
    programs, targets = (list(dict.fromkeys(names)) for names in zip(*checked.matrix, strict=True))
    missed = Counter(violation.module for violation in checked.violations)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", *targets):
        table.add_column(safe(name))
    for program in programs:
        row = [Text(safe(program))]
        for target in targets:
            cell = cells.get((program, target))
            count = missed[f"{program} on {target}"]
            if (program, target) not in checked.matrix:
                row.append(Text("-", style="dim"))
            elif cell is None or cell.now is None:
                row.append(Text("does not compile", style="red"))
            else:
                words = f"{count} not met" if count else "met"
                row.append(Text(words + _change(cell), style="red" if count else "green"))
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()


def _change(cell: Compared) -> str:
    """Return how the time, or else the launches, of a module changed."""
    if cell.before is None or cell.now is None:
        return ""
    for figure in ("time", "launches"):
        both = figures_of(cell.before, cell.now, figure)
        if both is not None and both[0]:
            share = 100 * (both[1] / both[0] - 1)
            return f", {figure} {share:+.0f}%" if abs(share) >= 0.5 else ""
    return ""


def rules_lines(checked: Checked) -> list[str]:
    """Return the rules that gave reasons, with the modules for which the text is the same."""
    modules: dict[str, list[str]] = defaultdict(list)
    for _, module, rules in checked.rules:
        modules[f"{rules.version}; {rules_used.in_words(rules)}"].append(module)
    return [f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in modules.items()]
