"""One HLO module, as ``parse`` shows it: for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusionscope.report.text import plural, safe, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.hlo import Computation, Instruction, Module

SCHEMA = "fusionscope.parse/1"


def to_json(module: Module) -> dict[str, Any]:
    """The fields are documented in docs/json.md."""
    return {
        "schema": SCHEMA,
        "name": module.name,
        "entry": module.entry.name,
        "is_scheduled": module.is_scheduled,
        "attributes": module.attributes,
        "instructions": module.instruction_count,
        "edges": module.edge_count,
        "opcodes": dict(module.opcode_histogram().most_common()),
        "computations": [_computation_json(computation) for computation in module.computations],
    }


def _computation_json(computation: Computation) -> dict[str, Any]:
    return {
        "name": computation.name,
        "line": computation.module.place(computation.line)[0],
        "root": computation.root.name,
        "instructions": [_instruction_json(i) for i in computation.instructions],
    }


def _instruction_json(instruction: Instruction) -> dict[str, Any]:
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": str(instruction.shape),
        "operands": [operand.name for operand in instruction.operands],
        "users": [user.name for user in instruction.users],
        "called": [computation.name for computation in instruction.called],
        "attributes": instruction.attributes,
        "literal": instruction.literal,
        "line": instruction.line,
        "column": instruction.column,
        "source": [
            {"file": place.file, "line": place.line, "function": place.function}
            for place in instruction.stack
        ],
    }


def print_module(module: Module, console: Console) -> None:
    """Names and counts, for a terminal."""
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
