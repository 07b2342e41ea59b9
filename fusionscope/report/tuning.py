"""The changes that ``tune`` tried, as JSON and on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.report import rules_used
from fusionscope.report.rerun import timing_words
from fusionscope.report.text import plural, print_hidden, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.tune.search import Best, Tuning


def print_tuning(found: Tuning, output: Path, console: Console, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    measured = [each for each in found.attempts if each.ratio is not None]
    measured.sort(key=lambda each: each.ratio.median if each.ratio is not None else 0)
    failed = [each for each in found.attempts if each.problem]
    same = sum(each.is_same for each in found.attempts)
    console.print(
        Text(f"{safe(found.module)}, {plural(len(found.attempts), 'change')} tried", "bold")
    )
    rules_used.print_rules(found.rules, console)
    table = Table(box=None, pad_edge=False)
    table.add_column("time", justify="right")
    table.add_column("compile", justify="right")
    for name in ("numbers", "verdict", "change"):
        table.add_column(name)
    for each in measured[:top]:
        if each.ratio is not None:
            table.add_row(
                f"{each.ratio.median:.3f}",
                f"{each.compile_s or 0:.2f} s",
                str(each.numbers),
                str(each.verdict),
                safe(each.changes),
            )
    if measured:
        console.print(table)
        print_hidden(console, 0, len(measured), top, "change")
    for each in failed[:top]:
        console.print(Text(f"{safe(each.changes)}: {safe(each.problem)}", style="dim"))
    more = f", {len(failed) - top} more cannot be compiled or run" if len(failed) > top else ""
    console.print(Text(f"{plural(same, 'change')} with identical kernels{more}", style="dim"))
    if found.left:
        console.print(
            Text(f"{plural(found.left, 'change')} not tried: --budget SECONDS", style="yellow")
        )
    if found.best is None:
        console.print(Text("nothing was faster beyond noise", style="yellow"))
    else:
        _print_best(found.best, output, console)


def _print_best(best: Best, output: Path, console: Console) -> None:
    from rich.text import Text

    console.print(Text(f"\nbest: {safe(best.words)}", style="bold"))
    if best.measurement.timing is not None:
        console.print(Text(f"  {timing_words(best.measurement.timing)}", style="green"))
    before, after = best.compile_s
    console.print(
        f"  numbers: {best.measurement.numbers}; compile time {before:.2f} → {after:.2f} s"
    )
    for each in best.ablations:
        console.print(Text(f"  without “{safe(each.change)}”: {each.ratio:.3f} of the best time"))
    console.print(Text(f"  written to {safe(str(output))}", style="dim"))
