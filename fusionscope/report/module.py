"""The summary of one HLO module that ``parse`` shows, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.words.text import plural, safe, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.hlo import Module


def print_module(module: Module, console: Console) -> None:
    """Print names and counts to a terminal."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"module {safe(module.name)}", style="bold"))
    console.print(
        f"  {plural(len(module.bodies), 'computation')}, "
        f"{plural(module.instruction_count, 'instruction')}, "
        f"{plural(module.edge_count, 'def-use edge')}"
        f"{', scheduled' if module.is_scheduled else ''}"
    )
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name, justify in (("computation", "left"), ("line", "right"), ("instructions", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("root", no_wrap=True)
    for computation in module.computations:
        table.add_row(
            shorten(f"{'ENTRY ' if computation.is_entry else ''}{computation.name}", 50),
            str(module.place(computation.line)[0]),
            f"{len(computation.instructions):,}",
            computation.root.opcode,
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("opcode")
    table.add_column("count", justify="right")
    for opcode, count in module.opcode_histogram().most_common():
        table.add_row(opcode, f"{count:,}")
    console.print(Padding(table, (0, 0, 0, 2)))
