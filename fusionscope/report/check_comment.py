"""The result of a check as Markdown: a step summary, or a comment on a pull request."""

from __future__ import annotations

from datetime import date, timedelta
from math import ceil
from typing import TYPE_CHECKING

from fusionscope.check.expectation import growth_in_percent
from fusionscope.check.record import FIGURES, figures_of
from fusionscope.report.check import rules_lines, summary_of
from fusionscope.words.text import cell, code, duration, plural, safe, size

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked, Compared, Verdict
    from fusionscope.check.expectation import Violation
    from fusionscope.check.record import ModuleRecord
    from fusionscope.report.places import Repository

MARKER = "<!-- fusionscope check -->"  # by which a comment is found again
_MOST_VIOLATIONS = 8  # of an expectation
_MOST_CHARACTERS = 60_000  # of a comment: GitHub takes 65,536
_ALLOWED_DAYS = 30


def to_markdown(checked: Checked, repository: Repository, today: date | None = None) -> str:
    """Return the result. ``today`` is for the date of a suggested exception."""
    missed = [outcome for outcome in checked.outcomes if not outcome.is_met]
    outcomes_met = [outcome for outcome in checked.outcomes if outcome.is_met]
    lines = [MARKER, f"## fusionscope check: {summary_of(checked)}", ""]
    lines += _comparison(checked)
    lines += _worst(checked, repository)
    lines += [
        line for outcome_shown in missed for line in _verdict(outcome_shown, "❌", repository)
    ]
    lines += ["", *(cell(problem) for problem in checked.problems)]
    lines += _how_to_accept(checked, today or date.today())
    if outcomes_met:
        of_met = [
            line
            for outcome_shown in outcomes_met
            for line in _verdict(outcome_shown, "✅", repository)
        ]
        lines += _folded(f"{plural(len(outcomes_met), 'expectation')} met", of_met)
    lines += _folded("The compiler's rules", [f"- {cell(line)}" for line in rules_lines(checked)])
    return _cut("\n".join(lines) + "\n")


def _verdict(outcome: Verdict, mark: str, repository: Repository) -> list[str]:
    """Return an expectation, and below it what is not as expected."""
    about = outcome.expectation.identity
    violations = outcome.violations[:_MOST_VIOLATIONS]
    below = [_violation(violation, about, repository) for violation in violations]
    if hidden := len(outcome.violations) - len(below):
        below.append(f"… and {hidden} more")
    below += [
        cell(f"allowed until {allowance.until}: {allowance.why}: {violation}")
        for violation, allowance in outcome.allowed[:_MOST_VIOLATIONS]
    ]
    figures = tuple(figure.words for figure in FIGURES.values())  # which the table has
    notes = [note for note in outcome.notes if outcome.is_met or not note.startswith(figures)]
    below += [cell(f"changed: {note}") for note in notes[:_MOST_VIOLATIONS]]
    return [f"- {mark} {cell(outcome.expectation.title)}", *(f"  - {line}" for line in below)]


def _folded(summary: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    return ["", f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def _cut(text: str) -> str:
    """Return as many whole lines as a comment may have."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[: text.rindex(chr(10), 0, _MOST_CHARACTERS)]}\n\n… cut here.\n"


def _violation(violation: Violation, about: str, repository: Repository) -> str:
    """Return a violation, with its module unless that is what the expectation is ``about``."""
    module = f"{violation.module}: " if violation.module not in ("", about) else ""
    place = f" at {repository.shown(violation.source)}" if violation.source else ""
    return cell(f"{module}{violation}{place}")


def _comparison(checked: Checked) -> list[str]:
    """Return a table of the modules that changed."""
    if not checked.origin:
        return []
    rows, unchanged = [], 0
    missed = {violation.module for violation in checked.violations}
    for compared in checked.compared:
        name = f"{compared.program} on {compared.target}" if compared.program else compared.name
        figures = _figures(compared)
        if name not in missed and not any(" → " in figure for figure in figures):
            unchanged += 1
            continue
        mark = "❌" if name in missed else "✅"
        rows.append(f"| {mark} | {cell(name)} | {' | '.join(figures)} |")
    if not rows:
        same = plural(unchanged, "module")
        return [f"Compared with {_origin(checked)}: {same}, no figure changed.", ""]
    lines = [
        f"Compared with {_origin(checked)}:",
        "",
        "| | | kernels | launches | bytes | time |",
        "|---|---|--:|--:|--:|--:|",
        *rows,
        "",
    ]
    if unchanged:
        lines += [f"The figures of {plural(unchanged, 'other module')} did not change.", ""]
    return lines


def _origin(checked: Checked) -> str:
    return checked.origin if checked.origin == "the baseline" else code(checked.origin)


def _figures(compared: Compared) -> list[str]:
    def pair(name: str) -> str:
        before, now = (_figure(record, name) for record in (compared.before, compared.now))
        if compared.before is None:
            return f"{now} (new)" if name == "kernels" else now
        if compared.now is None:
            return f"{before} → none"
        return before if before == now else f"{before} → {now}{share(name)}"

    def share(name: str) -> str:
        """Return the change of a time in percent."""
        if name != "time" or compared.before is None or compared.now is None:
            return ""
        both = figures_of(compared.before, compared.now, "time")
        percent = growth_in_percent(*both) if both is not None else ""
        return percent and f" ({percent})"

    return [*map(pair, ("kernels", "launches", "bytes", "time"))]


def _figure(record: ModuleRecord | None, name: str) -> str:
    if record is None:
        return "none"
    match name:
        case "kernels":
            return f"{record.kernel_count:,}"
        case "launches":
            return f"{record.launches:,}"
        case "bytes":
            return size(record.bytes_moved)
        case _:
            if record.time_us is None:
                return "unknown"
            return f"{'≥ ' if record.floor_launches else ''}{duration(record.time_us)}"


def _worst(checked: Checked, repository: Repository) -> list[str]:
    """Return the lost pair between whose operations most bytes pass."""
    lost = _lost(checked)
    if lost is None or lost.pair is None:
        return []
    place = f" at {code(repository.shown(lost.source))}" if lost.source else ""
    saved = (
        f" It passes {size(lost.pair.bytes_saved)} through memory." if lost.pair.bytes_saved else ""
    )
    return [f"Worst lost fusion, {cell(lost.module)}: {cell(str(lost))}{place}.{saved}", ""]


def _lost(checked: Checked) -> Violation | None:
    return max(
        (
            violation
            for violation in checked.violations
            if violation.pair is not None and violation.reason is not None
        ),
        key=lambda violation_found: (
            violation_found.expectation.compares,
            violation_found.pair.bytes_saved if violation_found.pair is not None else 0,
        ),
        default=None,
    )


def _how_to_accept(checked: Checked, today: date) -> list[str]:
    """Return what to do if a violation is intended."""
    exception = next(filter(None, map(_exception, [_lost(checked), *checked.violations])), None)
    if not checked.origin or exception is None:
        return []
    how = "Add an exception to the file of expectations, such as"
    if checked.origin == "the baseline":
        how = f"Run the same command with `--update` and commit the baseline, or a{how[1:]}"
    toml = ["[[allow]]", *map(safe, exception), f"until = {today + timedelta(days=_ALLOWED_DAYS)}"]
    return _folded("If this is intended", [how, "", "```toml", *toml, 'why = "…"', "```"])


def _exception(violation: Violation | None) -> list[str]:
    """Return the lines of an exception that covers a violation; none if none can."""
    if violation is None:
        return []
    if violation.pair is not None:
        producer, consumer = violation.pair.producer.opcode, violation.pair.consumer.opcode
        what = f'pair = "{producer} -> {consumer}"'
    elif violation.growth is not None and violation.growth.before:
        growth = violation.growth
        percent = ceil(round(100 * (growth.after / growth.before - 1), 6))
        what = f'growth = {{ {growth.figure} = "{percent}%" }}'
    else:
        return []
    program, on, target = violation.module.partition(" on ")
    where = f'program = "{program}", target = "{target}"' if on else f'module = "{program}"'
    return [what, f"where = {{ {where} }}"]
