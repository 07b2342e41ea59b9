"""The fusions that change results or times, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionscope.bisect.result import By
from fusionscope.report.rerun import farthest
from fusionscope.words.text import duration, file_and_line, plural, print_hidden, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.bisect.result import Bisection, Cost, Culprit
    from fusionscope.rerun.running import ResultDifference

_AMPLIFIES = (
    "the reference itself is far from a run in 64 bits: the program amplifies rounding, so what is "
    "found may be no more than that"
)


def print_bisection(bisection: Bisection, console: Console, top: int) -> None:
    from rich.text import Text

    words = f"{safe(bisection.module)}, {plural(bisection.kernels, 'kernel')}"
    if bisection.reference:
        words += f", against {safe(bisection.reference)}"
    console.print(Text(words, "bold"))
    _print_whole(bisection, console)
    if bisection.problem:
        console.print(Text(bisection.problem, style="yellow"))
        return
    failed = (
        f", {bisection.failed} of them could not be compiled or run" if bisection.failed else ""
    )
    console.print(Text(f"  {plural(bisection.tried, 'part')} of the plan tried{failed}", "dim"))
    if bisection.amplifies:
        console.print(Text(f"  {_AMPLIFIES}", "yellow"))
    for culprit in bisection.found:
        _print_culprit(culprit, console, top)
    pairs = [pair for culprit in bisection.found for pair in culprit.pairs if not pair.are_siblings]
    if len(pairs) == 1:
        words = f"{pairs[0].producer} -> {pairs[0].consumer}"
        console.print(Text(f"  to keep them apart: rerun --forbid '{safe(words)}'", "dim"))
    _print_rest(bisection, console)


def _print_whole(bisection: Bisection, console: Console) -> None:
    from rich.text import Text

    if bisection.crash:
        console.print(Text(f"  it crashes: {safe(bisection.crash)}", "red"))
    elif bisection.results:
        runs = (
            ""
            if bisection.shows_in == bisection.runs
            else f" ({bisection.shows_in} of {bisection.runs} runs)"
        )
        is_wrong = bool(bisection.shows_in) and not bisection.problem
        style = "red" if is_wrong else ""
        console.print(Text(f"  {_numbers(bisection.results)}{runs if is_wrong else ''}", style))


def _print_culprit(culprit: Culprit, console: Console, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    count = len(culprit.operations)
    share = "" if count == culprit.of else f", {count} of its {culprit.of} operations"
    console.print(Text(f"\n{safe(culprit.kernel)}{share}", "bold"))
    for pair in culprit.pairs[:top]:
        link = "beside" if pair.are_siblings else "->"
        console.print(Text(f"  {safe(pair.producer)} {link} {safe(pair.consumer)}", "green"))
    print_hidden(console, 0, len(culprit.pairs), top, "pair")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for operation in culprit.operations[:top]:
        table.add_row(
            Text(f"    {safe(operation.name)}"),
            Text(safe(operation.opcode)),
            Text(safe(operation.shape)),
            Text(file_and_line(operation.source)),
        )
    console.print(table)
    print_hidden(console, 0, count, top, "operation")


def _print_rest(bisection: Bisection, console: Console) -> None:
    from rich.text import Text

    if bisection.cost is not None:
        console.print(Text(f"\n{_cost_words(bisection.cost, bisection.by)}"))
    elif bisection.alone:
        console.print(Text(f"\nwith nothing else fused: {_numbers(bisection.alone)}"))
    for culprit in bisection.found:
        reproducer = culprit.reproducer
        if reproducer is None:
            continue
        console.print(Text(f"\nalone: python {safe(str(reproducer.directory / 'reproduce.py'))}"))
        for line in reproducer.output:
            console.print(Text(f"  {safe(line)}", "dim"))
        if reproducer.problem:
            console.print(Text(f"  {safe(reproducer.problem)}", "yellow"))
        elif not reproducer.differs:
            console.print(Text("  alone, the kernel computes the same as unfused", "yellow"))


def _numbers(results: Sequence[ResultDifference]) -> str:
    """Return how results compare, and the difference of the least accurate one."""
    from fusionscope.rerun.running import Measurement

    measured = Measurement("", tuple(results))
    return f"{measured.numbers}{farthest(measured)}"


def _cost_words(cost: Cost, by: By) -> str:
    whole, without, unfused = (
        duration(seconds * 1e6) for seconds in (cost.whole_s, cost.without_s, cost.unfused_s)
    )
    what = "compile time" if by is By.COMPILE_TIME else "time"
    return f"{what} {whole}, without this {without}; without any fusion {unfused}"
