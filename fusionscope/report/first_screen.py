"""The first screen of ``explain``: the modules, and the essentials of the costliest one."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from fusionscope.explain.modules import MODULES_SHOWN
from fusionscope.findings.breakdown.sheet import print_lines, print_rows
from fusionscope.findings.compile_time import sheet as compile_time
from fusionscope.findings.measured import sheet as measured
from fusionscope.findings.memory import sheet as memory
from fusionscope.findings.recomputed import sheet as recomputed
from fusionscope.findings.suggestions import sheet as suggestions
from fusionscope.report.explanation import print_header, print_what_if
from fusionscope.report.refusals import why
from fusionscope.words.text import duration, file_and_line, or_dash, plural, size, squeeze

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import Explanation, ModuleFacts, ModuleRow, Refusals

_LINES = 3  # entries of a list


def print_screen(explanation: Explanation, console: Console) -> None:
    """Print the table of modules if there are several, then the first explained module."""
    if len(explanation.table) > 1:
        _print_modules(explanation.table, console)
        console.print()
    module = explanation.modules[0]
    print_header(module, console)
    if module.what_if is not None:
        print_what_if(module.what_if, console, _LINES)
    if module.breakdown is not None and module.totals.launches > 1:
        console.print()
        print_lines(module.breakdown, console)
    measured.print_measured(module, console, top=_LINES)
    _print_refusals(module, console)
    recomputed.print_summary(module, console)
    memory.print_summary(module, console)
    compile_time.print_summary(module.compile_time, console)
    suggestions.print_suggestions(module.suggestions, console, top=_LINES)
    _print_more(explanation, module, console)


def _print_modules(table: tuple[ModuleRow, ...], console: Console) -> None:
    """Print a table of modules, with their devices if these differ."""
    shown = [row for row in table if not row.is_helper][:MODULES_SHOWN] or list(
        table[:MODULES_SHOWN]
    )
    names_devices = len({row.device for row in table}) > 1
    rows = [(f"{row.name}  ({row.number})", row.device, *_figures(row)) for row in shown]
    rest = [row for row in table if row not in shown]
    if rest:
        helpers = sum(row.is_helper for row in rest)
        words = (
            plural(helpers, "helper of JAX", "helpers of JAX")
            if helpers == len(rest)
            else plural(len(rest), "other")
        )
        rows.append(
            (
                words,
                "",
                or_dash(fsum(row.time_us or 0 for row in rest), duration),
                f"{sum(row.launches for row in rest):,}",
                or_dash(sum(row.bytes_moved for row in rest), size),
                "",
            )
        )
    titles = (plural(len(table), "module"), "device", "time", "launches", "bytes", "not fused")
    lines = [line if names_devices else (line[0], *line[2:]) for line in (titles, *rows)]
    print_rows(console, lines[0], lines[1:], indent=0)


def _figures(row: ModuleRow) -> tuple[str, str, str, str]:
    """Return time, launches, bytes and refused bytes; nothing for one that is unknown."""
    return (
        duration(row.time_us) if row.time_us is not None else "",
        f"{row.launches:,}",
        or_dash(row.bytes_moved, size),
        or_dash(row.refused_bytes, size) if row.refused_bytes is not None else "",
    )


def _print_refusals(module: ModuleFacts, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    refusals = module.refusals[:_LINES]
    if not refusals:
        return
    total = sum(reason.bytes_saved for reason in module.reasons)
    pairs = sum(reason.count for reason in module.reasons)
    console.print(
        Text.assemble(
            "\n  ",
            ("Costliest refusals", "bold"),
            (f" of {plural(pairs, 'pair')}, {size(total)}", "dim"),
        )
    )
    width = max(len(size(each.bytes_saved)) for each in refusals)
    for each in refusals:
        line = f"{size(each.bytes_saved):>{width}}  {_pair(each, console.width - width - 4)}"
        console.print(Text(f"  {line}", no_wrap=True))
        cost = each.example.cost
        lost = cost.fused_us - cost.unfused_us if cost is not None else 0
        loss = f"; {duration(lost)} slower" if lost > 0 else ""
        words = Text(f"{why(each.example)}{loss}", style="red")
        if known := suggestions.for_refusal(module.suggestions, each.example, in_full=False):
            words.append(f"; {known}", style="cyan")
        console.print(Padding(words, (0, 0, 0, width + 4)))


def _pair(refusal: Refusals, width: int) -> str:
    """Return the pair, the number of alike ones, and the place of the producer: names are
    shortened.
    """
    pair = refusal.example
    alike = f"  x{refusal.count:,}" if refusal.count > 1 else ""
    place = file_and_line(pair.producer.source or pair.consumer.source)
    end = f"{alike}  {place}" if place else alike
    return f"{squeeze(f'{pair.producer.name} -> {pair.consumer.name}', width - len(end))}{end}"


def _print_more(explanation: Explanation, module: ModuleFacts, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    options = ["--top 10 for the whole report", "--by scope|stack|file|kind", "--kernel NAME"]
    if module.refusals:
        options.append("--pair 'P -> C'")
    if len(explanation.table) > 1:
        options.append("--module NAME or number")
    words = Text(f"More: {', '.join(options)}", style="dim")
    console.print(Padding(words, (1, 0, 0, 2)))
