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


def print_tuning(found: Tuning, output: Path, console: Console, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    failed = [each for each in found.attempts if each.problem]
    same = sum(each.is_same for each in found.attempts)
    console.print(
        Text(f"{safe(found.module)}, {plural(len(found.attempts), 'change')} tried", "bold")
    )
    rules_used.print_rules(found.rules, console)
    table = Table(box=None, pad_edge=False)
    estimated = sorted(
        (each.estimated, each.changes) for each in found.attempts if each.estimated is not None
    )
    measured = _rank(found)
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
        for each in measured[:top]:
            _add_measured(table, each)
    if estimated or measured:
        console.print(table)
        print_hidden(console, 0, len(estimated or measured), top, "change")
    for each in failed[:top]:
        console.print(Text(f"{safe(each.changes)}: {safe(each.problem)}", style="dim"))
    more = f", {len(failed) - top} more cannot be compiled or run" if len(failed) > top else ""
    console.print(Text(f"{plural(same, 'change')} with identical kernels{more}", style="dim"))
    if found.left:
        console.print(
            Text(f"{plural(found.left, 'change')} not tried: --budget SECONDS", style="yellow")
        )
    if found.best is None:
        beyond = "beyond noise" if found.is_measured else "by the compiler's cost model"
        console.print(Text(f"nothing was faster {beyond}", style="yellow"))
    else:
        _print_best(found.best, output, console, top)


def _add_measured(table: Table, each: Attempt) -> None:
    if each.ratio is not None:
        table.add_row(
            f"{each.ratio.value:.3f}",
            f"{each.compile_s or 0:.2f} s",
            str(each.numbers),
            str(each.verdict) if each.is_confirmation else f"{each.verdict} (once)",
            safe(each.changes),
        )


def _rank(found: Tuning) -> list[Attempt]:
    """Return what was timed: the best first, then what was measured again in another process, then
    what was compiled and timed only once.
    """
    again = [each for each in found.attempts if each.is_confirmation]
    names = {each.changes for each in again if each.ratio is not None}
    last = {each.changes: each for each in found.attempts if not each.is_confirmation}
    once = [each for each in last.values() if each.changes not in names]
    best = found.best.words if found.best is not None else ""
    timed = [(each.changes != best, each.ratio.value, each) for each in again if each.ratio]
    rest = [(each.ratio.value, each) for each in once if each.ratio]
    return [
        *(each for *_, each in sorted(timed, key=lambda row: row[:2])),
        *(each for _, each in sorted(rest, key=lambda row: row[0])),
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
    for each in best.ablations:
        console.print(Text(f"  without “{safe(each.change)}”: {each.ratio:.3f} of the best time"))
    console.print(Text(f"  written to {safe(str(output))}", style="dim"))
