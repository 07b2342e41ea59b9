"""The changes that ``tune`` tried, as JSON and on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.report import rules_used
from fusionscope.report.rerun import timing_words
from fusionscope.report.text import plural, print_hidden, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.rerun.tuning import Tuning


def print_tuning(found: Tuning, output: Path, console: Console, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    ran = [each for each in found.attempts if each.measurement is not None]
    measured = sorted((each for each in ran if not each.problem), key=lambda each: each.ratio)
    failed = sum(bool(each.problem) for each in found.attempts)
    same = len(found.attempts) - len(measured) - failed
    console.print(
        Text(f"{safe(found.module)}, {plural(len(found.attempts), 'change')} tried", "bold")
    )
    rules_used.print_rules(found.rules, console)
    table = Table(box=None, pad_edge=False)
    table.add_column("time", justify="right")
    for name in ("numbers", "verdict", "change"):
        table.add_column(name)
    for each in measured[:top]:
        timing = each.measurement.timing if each.measurement is not None else None
        if each.measurement is not None and timing is not None:
            table.add_row(
                f"{timing.ratio.median:.3f}",
                str(each.measurement.numbers),
                str(timing.verdict),
                safe(str(each.changes)),
            )
    if measured:
        console.print(table)
        print_hidden(console, 0, len(measured), top, "change")
    console.print(
        Text(f"{same} produce identical kernels, {failed} cannot be compiled or run", style="dim")
    )
    if found.left:
        console.print(
            Text(f"{plural(found.left, 'change')} not tried: --budget SECONDS", style="yellow")
        )
    if found.best is None or found.best.measurement is None:
        console.print(Text("nothing was faster beyond noise", style="yellow"))
        return
    timing = found.best.measurement.timing
    console.print(Text(f"\nbest: {safe(str(found.best.changes))}", style="bold"))
    if timing is not None:
        console.print(Text(f"  {timing_words(timing)}", style="green"))
    console.print(Text(f"  written to {safe(str(output))}", style="dim"))
