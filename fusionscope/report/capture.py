"""Captured dumps as JSON and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.words.text import plural, safe, size

_WIDTH = 60  # the widest list of arguments

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.capture.capture import Captured
    from fusionscope.facts.result import ModuleFacts, TimeEstimate


def _arguments(captured: Captured) -> str:
    """Return their shapes, or their number and size if the shapes do not fit into a line."""
    count = len(captured.arguments)
    shapes = safe(", ".join(captured.arguments))
    if len(shapes) <= _WIDTH:
        return plural(count, "argument") + (f": {shapes}" if shapes else "")
    total = captured.argument_bytes
    return plural(count, "array") + (f", {size(total)}" if total is not None else "")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Return a row for one of several dumps.

    ``facts`` are those of its module, None if the compiler did not finish; ``estimate`` is by the
    cost model of a GPU, None for other devices.
    """

    name: str
    facts: ModuleFacts | None = None
    estimate: TimeEstimate | None = None


def print_comparison(compiled: Sequence[Compiled], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("device", overflow="fold", min_width=20)
    titles = ["launches", "bytes", "fused", "duplicated", "not fused"]
    if any(program.estimate for program in compiled):
        titles.append("time")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for program in compiled:
        table.add_row(safe(program.name), *_figures(program)[: len(titles)])
    console.print()
    console.print(table)
    if any(program.estimate is not None for program in compiled):
        words = (
            "  times are estimates by the compiler's cost model; for library calls, a lower bound"
        )
        console.print(Text(words, style="dim"))


def _figures(compiled: Compiled) -> list[str]:
    facts, estimate = compiled.facts, compiled.estimate
    if facts is None:
        return ["did not finish"]
    relation = f"{facts.relation} " if facts.relation else ""
    pairs = [
        f"{facts.summary.outcomes[outcome]:,}" for outcome in ("fused", "duplicated", "not-fused")
    ]
    time = ""
    if estimate is not None:
        time = f"{estimate.microseconds:,.2f} µs"
    totals = facts.summary
    return [
        f"{relation}{totals.launches:,}",
        f"{relation}{size(totals.bytes_moved)}",
        *pairs,
        time,
    ]


def print_captured(captured: Captured, console: Console) -> None:
    from rich.text import Text

    version = captured.versions.get("jaxlib", "an unknown jaxlib")
    title = Text(safe(captured.program), style="bold")
    title.append(f" for {safe(captured.target)}", style="bold")
    console.print(title)
    console.print(Text(f"  jaxlib {safe(version)}, {_arguments(captured)}"))
    if captured.program_flags:
        console.print(Text(f"  with the XLA_FLAGS that it sets: {safe(captured.program_flags)}"))
    console.print(Text(f"  in {safe(str(captured.directory))}"))
    for note in captured.notes:
        console.print(Text(f"  note: {safe(note)}", style="yellow"))
    if captured.profile is not None:
        console.print(Text(f"  ran, with a profile in {safe(str(captured.profile))}"))
    if captured.problem:
        ended = "" if captured.compile_s is not None else "did not finish: "
        console.print(Text(f"  {ended}{safe(captured.problem)}", style="yellow"))
