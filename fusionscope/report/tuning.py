"""The changes that ``tune`` tried, as JSON and on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.report.rerun import print_kernels, timing_words
from fusionscope.verify import rules_in_words as rules_used
from fusionscope.words.text import duration, plural, print_hidden, safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fusionscope.tune.journal import Attempt
    from fusionscope.tune.results import Best, Tuning


def print_tuning(tuning: Tuning, output: Path, console: Console, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    failed = [attempt for attempt in tuning.attempts if attempt.problem]
    same = sum(attempt.is_same for attempt in tuning.attempts)
    console.print(
        Text(f"{safe(tuning.module)}, {plural(len(tuning.attempts), 'change')} tried", "bold")
    )
    rules_used.print_rules(tuning.rules, console)
    table = Table(box=None, pad_edge=False)
    estimated = sorted(
        (attempt.estimated, attempt.changes)
        for attempt in tuning.attempts
        if attempt.estimated is not None
    )
    measured = _rank(tuning)
    if estimated:
        table.add_column("estimate", justify="right")
        table.add_column("change")
        for ratio, changes in estimated[:top]:
            table.add_row(f"{ratio:.3f}", safe(changes))
    else:
        table.add_column("time", justify="right")
        table.add_column("compile", justify="right")
        for name in ("numbers", "verdict", "change"):
            table.add_column(name)
        for attempt_shown in measured[:top]:
            _add_measured(table, attempt_shown)
    if estimated or measured:
        console.print(table)
        print_hidden(console, 0, len(estimated or measured), top, "change")
    for attempt_shown in failed[:top]:
        console.print(
            Text(f"{safe(attempt_shown.changes)}: {safe(attempt_shown.problem)}", style="dim")
        )
    more = f", {len(failed) - top} more cannot be compiled or run" if len(failed) > top else ""
    console.print(Text(f"{plural(same, 'change')} with identical kernels{more}", style="dim"))
    if tuning.left:
        console.print(
            Text(f"{plural(tuning.left, 'change')} not tried: --budget SECONDS", style="yellow")
        )
    if tuning.best is None:
        beyond = "beyond noise" if tuning.is_measured else "by the compiler's cost model"
        console.print(Text(f"nothing was faster {beyond}", style="yellow"))
    else:
        _print_best(tuning.best, output, console, top)


def _add_measured(table: Table, attempt: Attempt) -> None:
    if attempt.ratio is not None:
        table.add_row(
            f"{attempt.ratio.value:.3f}",
            f"{attempt.compile_s or 0:.2f} s",
            str(attempt.numbers),
            str(attempt.verdict) if attempt.is_confirmation else f"{attempt.verdict} (once)",
            safe(attempt.changes),
        )


def _rank(tuning: Tuning) -> list[Attempt]:
    """Return what was timed: the best first, then what was measured again in another process, then
    what was compiled and timed only once.
    """
    confirmed = [attempt for attempt in tuning.attempts if attempt.is_confirmation]
    names = {
        attempt_ranked.changes for attempt_ranked in confirmed if attempt_ranked.ratio is not None
    }
    last = {attempt.changes: attempt for attempt in tuning.attempts if not attempt.is_confirmation}
    once = [
        attempt_ranked for attempt_ranked in last.values() if attempt_ranked.changes not in names
    ]
    best = tuning.best.words if tuning.best is not None else ""
    timed = [
        (attempt_ranked.changes != best, attempt_ranked.ratio.value, attempt_ranked)
        for attempt_ranked in confirmed
        if attempt_ranked.ratio
    ]
    other_attempts = [
        (attempt_ranked.ratio.value, attempt_ranked)
        for attempt_ranked in once
        if attempt_ranked.ratio
    ]
    return [
        *(attempt_ranked for *_, attempt_ranked in sorted(timed, key=lambda row: row[:2])),
        *(attempt_ranked for _, attempt_ranked in sorted(other_attempts, key=lambda row: row[0])),
    ]


def _print_best(best: Best, output: Path, console: Console, top: int) -> None:
    from rich.text import Text

    console.print(Text(f"\nbest: {safe(best.words)}", style="bold"))
    if best.estimates_us is not None:
        before, after = best.estimates_us
        words = f"{duration(before)} → {duration(after)}, ratio {after / before:.3f}"
        console.print(Text(f"  estimated time {words}; compiled, not measured", style="green"))
    if best.measurement is not None and best.measurement.timing is not None:
        console.print(Text(f"  {timing_words(best.measurement.timing)}", style="green"))
    if best.measurement is not None and best.compile_s is not None:
        before, after = best.compile_s
        console.print(
            f"  numbers: {best.measurement.numbers}; compile time {before:.2f} → {after:.2f} s"
        )
    print_kernels(best.kernels, best.not_profiled, console, top)
    for ablation in best.ablations:
        console.print(
            Text(f"  without “{safe(ablation.change)}”: {ablation.ratio:.3f} of the best time")
        )
    console.print(Text(f"  written to {safe(str(output))}", style="dim"))
