"""One kernel by itself, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.resources.sheet import words_on
from fusionscope.reasons.why import why
from fusionscope.words.section import (
    Block,
    Column,
    Entry,
    Section,
    Table,
    Tone,
    line,
    lines,
    ranked,
    spans,
)
from fusionscope.words.text import counted, duration, size

if TYPE_CHECKING:
    from fusionscope.facts.result import (
        KernelFacts,
        KernelInput,
        KernelOutput,
        KernelPage,
        PairFacts,
    )

_SOURCES = {
    "model": "by the compiler's model",
    "floor": "at least: the compiler's model does not cover it",
    "nominal": "on a nominal CPU",
}
_INPUTS = (Column("bytes", is_number=True), Column("input"), Column("shape", is_flexible=True))


def sheets(page: KernelPage, top: int | None) -> Iterator[Section]:
    """Yield what a kernel computes and takes, its inputs and outputs, its borders, its HLO."""
    yield kernel_sheet(page.kernel, page.sources)
    inputs = tuple(map(_input, page.inputs))
    yield Section(title="Inputs", blocks=(Table(columns=_INPUTS, rows=inputs, has_head=False),))
    yield Section(title="Outputs", blocks=(lines(_output(output, top) for output in page.outputs),))
    for title, pairs in (("Why it begins here", page.began), ("Why it ends here", page.ended)):
        yield Section(title=title, blocks=(_borders(pairs, top),))
    yield Section(title="HLO", blocks=(lines(page.hlo),))


def kernel_sheet(kernel: KernelFacts, sources: Sequence[str] = ()) -> Section:
    """Return what a kernel computes and takes. ``sources`` are the lines of the program."""
    places = sources or ([kernel.source] if kernel.source else [])
    return Section(title=kernel.name, blocks=(lines(_words(kernel, places)),), is_heading=True)


def _words(kernel: KernelFacts, sources: Sequence[str]) -> Iterator[str]:
    emitter = f", {kernel.emitter}" if kernel.emitter else ""
    runs = "" if kernel.runs == 1 else f", launched {kernel.runs:,} times"
    yield f"{kernel.kind}{emitter}, in {kernel.computation}{runs}"
    yield f"computes {counted(kernel.members)}"
    if kernel.time_ns is not None and kernel.time_source is not None:
        yield f"{duration(kernel.time_ns / 1000)} a launch, {_SOURCES[kernel.time_source]}"
    yield from words_on(kernel)
    yield f"reads {size(kernel.bytes_read)}, writes {size(kernel.bytes_written)}"
    if kernel.op_name:
        yield f"named {kernel.op_name}"
    if sources:
        yield f"at {', '.join(sources)}"


def _input(operand: KernelInput) -> tuple[str, ...]:
    return size(operand.bytes_read), operand.name, f"{operand.opcode} {operand.shape}"


def _output(output: KernelOutput, top: int | None) -> str:
    readers = ", ".join(output.readers[:top]) or "nobody"
    hidden = len(output.readers) - len(output.readers[:top])
    more = f" and {hidden:,} more" if hidden else ""
    return f"{output.shape}, read by {readers}{more}"


def _borders(pairs: Sequence[PairFacts], top: int | None) -> Block:
    if not pairs:
        return lines(["no pair was refused there"])
    entries = [
        Entry(
            label=size(pair.bytes_saved),
            name=spans(f"{pair.producer.name} -> {pair.consumer.name}"),
            lines=(line(why(pair), Tone.BAD),),
            is_cut=True,
        )
        for pair in pairs[:top]
    ]
    return ranked("pair", entries, len(pairs))
