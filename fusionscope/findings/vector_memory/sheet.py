"""Vector memory in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.vector_memory.facts import VectorMemory
from fusionscope.words.section import Entry, Section, Tone, line, ranked, strong
from fusionscope.words.text import file_and_line

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_NEAR = 0.8  # of the limit


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the kernels, those first that take most."""
    yield from _section(module.find_all(VectorMemory), top)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the kernels of the program that take nearly all that they may."""
    yield from _section([*filter(_is_near, module.find_all(VectorMemory))], 2)


def _is_near(kernel: VectorMemory) -> bool:
    limit = kernel.limit if kernel.is_own else None
    return limit is not None and kernel.bytes >= _NEAR * limit


def _section(kernels: Sequence[VectorMemory], top: int | None) -> Iterator[Section]:
    if not kernels:
        return
    entries = [_entry(rank, kernel) for rank, kernel in enumerate(kernels[:top], 1)]
    yield Section(
        title="Vector memory",
        blocks=(ranked("kernel", entries, len(kernels), ("bytes", "source")),),
    )


def _entry(rank: int, kernel: VectorMemory) -> Entry:
    limit = f"of {_mebibytes(kernel.limit)} MiB" if kernel.limit else "MiB"
    words = "larger blocks may not compile: one kernel may take no more"
    return Entry(
        label=f"{rank}.",
        name=strong(kernel.kernel),
        figures=(f"{_mebibytes(kernel.bytes)} {limit}", file_and_line(kernel.source) or ""),
        lines=(line(words, Tone.QUIET),) if _is_near(kernel) else (),
    )


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.3g}"
