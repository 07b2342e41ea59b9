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


def print_bisection(found: Bisection, console: Console, top: int) -> None:
    from rich.text import Text

    words = f"{safe(found.module)}, {plural(found.kernels, 'kernel')}"
    if found.reference:
        words += f", against {safe(found.reference)}"
    console.print(Text(words, "bold"))
    _print_whole(found, console)
    if found.problem:
        console.print(Text(found.problem, style="yellow"))
        return
    failed = f", {found.failed} of them could not be compiled or run" if found.failed else ""
    console.print(Text(f"  {plural(found.tried, 'part')} of the plan tried{failed}", "dim"))
    if found.amplifies:
        console.print(Text(f"  {_AMPLIFIES}", "yellow"))
    for culprit in found.found:
        _print_culprit(culprit, console, top)
    pairs = [pair for culprit in found.found for pair in culprit.pairs if not pair.are_siblings]
    if len(pairs) == 1:
        words = f"{pairs[0].producer} -> {pairs[0].consumer}"
        console.print(Text(f"  to keep them apart: rerun --forbid '{safe(words)}'", "dim"))
    _print_rest(found, console)


def _print_whole(found: Bisection, console: Console) -> None:
    from rich.text import Text

    if found.crash:
        console.print(Text(f"  it crashes: {safe(found.crash)}", "red"))
    elif found.results:
        runs = "" if found.shows_in == found.runs else f" ({found.shows_in} of {found.runs} runs)"
        is_wrong = bool(found.shows_in) and not found.problem
        style = "red" if is_wrong else ""
        console.print(Text(f"  {_numbers(found.results)}{runs if is_wrong else ''}", style))


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
    for each in culprit.operations[:top]:
        table.add_row(
            Text(f"    {safe(each.name)}"),
            Text(safe(each.opcode)),
            Text(safe(each.shape)),
            Text(file_and_line(each.source)),
        )
    console.print(table)
    print_hidden(console, 0, count, top, "operation")


def _print_rest(found: Bisection, console: Console) -> None:
    from rich.text import Text

    if found.cost is not None:
        console.print(Text(f"\n{_cost_words(found.cost, found.by)}"))
    elif found.alone:
        console.print(Text(f"\nwith nothing else fused: {_numbers(found.alone)}"))
    for culprit in found.found:
        made = culprit.reproducer
        if made is None:
            continue
        console.print(Text(f"\nalone: python {safe(str(made.directory / 'reproduce.py'))}"))
        for line in made.output:
            console.print(Text(f"  {safe(line)}", "dim"))
        if made.problem:
            console.print(Text(f"  {safe(made.problem)}", "yellow"))
        elif not made.differs:
            console.print(Text("  alone, the kernel computes the same as unfused", "yellow"))


def _numbers(results: Sequence[ResultDifference]) -> str:
    """Return how results compare, and the difference of the least accurate one."""
    from fusionscope.rerun.running import Measurement

    measured = Measurement("", tuple(results))
    return f"{measured.numbers}{farthest(measured)}"


def _cost_words(cost: Cost, by: By) -> str:
    whole, without, unfused = (
        duration(each * 1e6) for each in (cost.whole_s, cost.without_s, cost.unfused_s)
    )
    what = "compile time" if by is By.COMPILE_TIME else "time"
    return f"{what} {whole}, without this {without}; without any fusion {unfused}"
