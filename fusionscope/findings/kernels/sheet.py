"""The kernels of a module in words: by kind, and the heaviest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Section, Table
from fusionscope.words.text import counted, file_and_line, size

if TYPE_CHECKING:
    from fusionscope.facts.result import AlikeKernels, ModuleFacts

_KIND_COLUMNS = (
    Column("kind"),
    Column("kernels", is_number=True),
    Column("launches", is_number=True),
    Column("bytes", is_number=True),
    Column("", is_number=True),
)
_HEAVIEST_COLUMNS = (
    Column("heaviest", is_flexible=True),
    Column("", is_number=True),
    Column("emitter", is_flexible=True),
    Column("runs", is_number=True),
    Column("bytes", is_number=True),
    Column("computes", is_flexible=True),
    Column("source"),
)


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the kernels by kind, and the heaviest."""
    yield Section(title="Kernels", blocks=(_kinds(module),))
    if len(module.kernels) > 1:
        rows = tuple(map(_row, module.alike.kernels[:top]))
        yield Section(blocks=(Table(columns=_HEAVIEST_COLUMNS, rows=rows),))


def _kinds(module: ModuleFacts) -> Table:
    total = module.summary.bytes_moved or 1
    rows = tuple(
        (
            name,
            f"{kind.kernels:,}",
            f"{kind.launches:,}",
            size(kind.bytes_moved),
            f"{100 * kind.bytes_moved / total:.0f}%",
        )
        for name, kind in module.summary.kinds.items()
    )
    return Table(columns=_KIND_COLUMNS, rows=rows)


def _row(alike: AlikeKernels) -> tuple[str, ...]:
    kernel = alike.example
    return (
        kernel.name,
        f"x{alike.count:,}" if alike.count > 1 else "",
        kernel.emitter,
        f"{kernel.runs:,}" if kernel.runs_known else f"{kernel.runs:,}+",
        size(alike.bytes_moved),
        counted(kernel.members),
        file_and_line(kernel.source),
    )
