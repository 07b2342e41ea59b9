"""One kernel by itself, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.resources.sheet import words_on
from fusionscope.report.refusals import why
from fusionscope.words.text import counted, duration, plural, safe, size, squeeze

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import KernelPage, PairFacts

_SOURCES = {
    "model": "by the compiler's model",
    "floor": "at least: the compiler's model does not cover it",
    "nominal": "on a nominal CPU",
}


def print_kernel(page: KernelPage, console: Console, *, top: int | None) -> None:
    from rich.text import Text

    kernel = page.kernel
    console.print(Text(safe(kernel.name), style="bold"))
    emitter = f", {kernel.emitter}" if kernel.emitter else ""
    runs = "" if kernel.runs == 1 else f", launched {kernel.runs:,} times"
    _print(console, f"{kernel.kind}{emitter}, in {kernel.computation}{runs}")
    _print(console, f"computes {counted(kernel.members)}")
    if kernel.time_ns is not None and kernel.time_source is not None:
        words = _SOURCES[kernel.time_source]
        _print(console, f"{duration(kernel.time_ns / 1000)} a launch, {words}")
    for words in words_on(kernel):
        _print(console, words)
    _print(console, f"reads {size(kernel.bytes_read)}, writes {size(kernel.bytes_written)}")
    if kernel.op_name:
        _print(console, f"named {kernel.op_name}")
    if page.sources:
        _print(console, f"at {', '.join(page.sources)}")
    _title(console, "Inputs")
    for each in page.inputs:
        _print(console, f"{size(each.bytes_read):>7}  {each.name}  {each.opcode} {each.shape}")
    _title(console, "Outputs")
    for output in page.outputs:
        readers = ", ".join(output.readers[:top]) or "nobody"
        hidden = len(output.readers) - len(output.readers[:top])
        more = f" and {hidden:,} more" if hidden else ""
        _print(console, f"{output.shape}, read by {readers}{more}")
    for title, pairs in (("Why it begins here", page.began), ("Why it ends here", page.ended)):
        _print_borders(title, pairs, console, top)
    _title(console, "HLO")
    for line in page.hlo:
        console.print(Text(f"  {safe(line)}"), soft_wrap=True)


def _print_borders(
    title: str, pairs: Sequence[PairFacts], console: Console, top: int | None
) -> None:

    _title(console, title)
    if not pairs:
        _print(console, "no pair was refused there")
    for pair in pairs[:top]:
        ends = squeeze(f"{pair.producer.name} -> {pair.consumer.name}", console.width - 12)
        _print(console, f"{size(pair.bytes_saved):>7}  {ends}")
        _print(console, why(pair), indent=11, style="red")
    if len(pairs) > len(pairs[:top]):
        _print(console, f"… and {plural(len(pairs) - len(pairs[:top]), 'more pair')}: --top N")


def _title(console: Console, title: str) -> None:
    from rich.text import Text

    console.print(Text(f"\n  {title}", style="bold"))


def _print(console: Console, words: str, *, indent: int = 2, style: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(safe(words), style=style), (0, 0, 0, indent)))
