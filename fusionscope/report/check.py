"""The result of a check in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.check.record import figures_of
from fusionscope.verify import rules_in_words
from fusionscope.words.section import (
    Column,
    Entries,
    Entry,
    Line,
    Section,
    Span,
    Table,
    Tone,
    line,
    lines,
    spans,
)
from fusionscope.words.text import hidden_entries, plural

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked, Compared, Verdict
    from fusionscope.check.updating import Updated
    from fusionscope.report.places import Repository


def sections_of(checked: Checked, top: int, repository: Repository) -> Iterator[Section]:
    """Yield the expectations, with at most ``top`` violations of each, and the matrix."""
    entries = tuple(
        _entry(outcome, top, repository)
        for outcome in checked.outcomes
        if not is_in_table(outcome, checked)
    )
    blocks = (
        lines(rules_lines(checked), Tone.QUIET),
        Entries(noun="expectation", entries=entries),
    )
    yield Section(blocks=blocks, is_heading=True)
    if checked.matrix:
        yield Section(blocks=(_matrix(checked),), is_heading=True)
    tone = Tone.GOOD if checked.is_met else Tone.BAD
    yield Section(blocks=(lines([summary_of(checked)], tone),), is_heading=True)


def summary_of(checked: Checked) -> str:
    missed = sum(not outcome.is_met for outcome in checked.outcomes)
    if not missed:
        return f"{plural(len(checked.outcomes), 'expectation')} met"
    return f"{missed} of {plural(len(checked.outcomes), 'expectation')} not met"


def is_in_table(outcome: Verdict, checked: Checked) -> bool:
    """Return whether the table of a matrix says all there is to say."""
    is_plain = outcome.is_met and not (outcome.notes or outcome.allowed)
    return is_plain and outcome.expectation.key == "baseline" and bool(checked.matrix)


def _entry(outcome: Verdict, top: int, repository: Repository) -> Entry:
    expectation = outcome.expectation
    tone = Tone.GOOD if outcome.is_met else Tone.BAD
    return Entry(
        label="met" if outcome.is_met else "NOT MET",
        name=spans((expectation.title, tone)),
        lines=tuple(_details(outcome, top, repository)),
    )


def _details(outcome: Verdict, top: int, repository: Repository) -> Iterator[Line]:
    """Yield what is not as expected, what an exception allows, and what else changed."""
    expectation = outcome.expectation
    if expectation.message and not outcome.is_met:
        yield line(str(expectation), Tone.QUIET)
    for violation in outcome.violations[:top]:
        is_named = violation.module in ("", expectation.identity)
        yield line(f"{violation}" if is_named else f"{violation.module}: {violation}")
        if violation.source:
            yield line(f"  at {repository.shown(violation.source)}", Tone.QUIET)
    if (hidden := len(outcome.violations) - top) > 0:
        yield line(hidden_entries(hidden, "violation"), Tone.QUIET)
    for violation, allowance in outcome.allowed:
        words = f"allowed until {allowance.until}: {allowance.why}: {violation}"
        yield line(words, Tone.QUIET)
    for note in outcome.notes:
        yield line(f"changed: {note}", Tone.QUIET)


def update_sections(updated: Updated, top: int) -> Iterator[Section]:
    """Yield what a new baseline accepts."""
    entries = [_accepted(outcome, top) for outcome in updated.accepted]
    entries += [Entry(label="new", name=spans(name)) for name in updated.new]
    entries += [
        Entry(label="removed", name=spans(f"{name}: no dump has it")) for name in updated.removed
    ]
    if updated.kept:
        entries.append(_quiet("kept", plural(len(updated.kept), "other module")))
    if updated.unchanged:
        entries.append(_quiet("unchanged", plural(updated.unchanged, "module")))
    yield Section(blocks=(Entries(noun="module", entries=tuple(entries)),), is_heading=True)


def _quiet(label: str, words: str) -> Entry:
    return Entry(label=label, name=spans((words, Tone.QUIET)))


def _accepted(outcome: Verdict, top: int) -> Entry:
    changes = [str(violation) for violation in outcome.violations]
    changes += [f"changed: {note}" for note in outcome.notes]
    hidden = len(changes) - top
    more = [hidden_entries(hidden, "change")] if hidden > 0 else []
    return Entry(
        label="accepted",
        name=spans(outcome.expectation.identity),
        lines=lines([*changes[:top], *more]).lines,
    )


def _matrix(checked: Checked) -> Table:
    """Return a table of programs and targets."""
    programs, targets = (list(dict.fromkeys(names)) for names in zip(*checked.matrix, strict=True))
    missed = Counter(violation.module for violation in checked.violations)
    cells = {(comparison.program, comparison.target): comparison for comparison in checked.compared}
    rows = (
        (
            program,
            *(
                _cell(cells.get((program, target)), missed[f"{program} on {target}"])
                if (program, target) in checked.matrix
                else Span("-", Tone.QUIET)
                for target in targets
            ),
        )
        for program in programs
    )
    columns = (Column("program"), *map(Column, targets))
    return Table(columns=columns, rows=tuple(rows), noun="program")


def _cell(comparison: Compared | None, missed: int) -> Span:
    if comparison is None or comparison.now is None:
        return Span("does not compile", Tone.BAD)
    words = f"{missed} not met" if missed else "met"
    return Span(words + _change(comparison), Tone.BAD if missed else Tone.GOOD)


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
        modules[f"{rules.version}; {rules_in_words.in_words(rules)}"].append(module)
    return [f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in modules.items()]
