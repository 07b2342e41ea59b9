"""The summary of one HLO module that ``parse`` shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Section, Table, spans
from fusionscope.words.text import plural

if TYPE_CHECKING:
    from fusionscope.hlo import Module


def module_sheet(module: Module) -> Iterator[Section]:
    """Yield names and counts, the computations, and the opcodes."""
    counts = (
        f"{plural(len(module.bodies), 'computation')}, "
        f"{plural(module.instruction_count, 'instruction')}, "
        f"{plural(module.edge_count, 'def-use edge')}"
        f"{', scheduled' if module.is_scheduled else ''}"
    )
    yield Section(title=f"module {module.name}", summary=spans(counts), is_heading=True)
    yield Section(blocks=(_computations(module),))
    yield Section(blocks=(_opcodes(module),))


def _computations(module: Module) -> Table:
    columns = (
        Column("computation", is_flexible=True),
        Column("line", is_number=True),
        Column("instructions", is_number=True),
        Column("root"),
    )
    rows = (
        (
            f"{'ENTRY ' if computation.is_entry else ''}{computation.name}",
            str(module.place(computation.line)[0]),
            f"{len(computation.instructions):,}",
            computation.root.opcode,
        )
        for computation in module.computations
    )
    return Table(columns=columns, rows=tuple(rows), noun="computation")


def _opcodes(module: Module) -> Table:
    histogram = module.opcode_histogram().most_common()
    rows = tuple((opcode, f"{count:,}") for opcode, count in histogram)
    return Table(columns=(Column("opcode"), Column("count", is_number=True)), rows=rows)
