"""Measured times of kernels beside those of the model, as Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.breakdown.sheet import print_rows
from fusionscope.words.text import (
    cell,
    code,
    duration,
    file_and_line,
    or_dash,
    plural,
    print_hidden,
    safe,
    size,
    squeeze,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import (
        KernelFacts,
        Measured,
        MeasuredCall,
        ModuleFacts,
        RefusalWorth,
    )

_TITLE = "Measured"


def to_markdown(module: ModuleFacts, top: int | None) -> Iterator[str]:
    """Yield the lines of a table, empty if nothing was measured."""
    if module.measured is None:
        return
    yield f"{_TITLE}: {_summary(module.measured)}.\n"
    yield f"| kernel | {' | '.join(_HEAD)} | source |\n|---|{'--:|' * len(_HEAD)}---|"
    known = _known(module)
    for kernel in known[:top]:
        figures = " | ".join(_figures(kernel, module.measured))
        yield f"| {code(kernel.name)} | {figures} | {cell(kernel.source or '')} |"
    yield ""
    for call in module.measured.calls[:top]:
        yield f"- {cell(_call(call))}"
    if module.measured.refusals:
        yield f"{_title_of_refusals(module.measured)}:\n"
    for each in module.measured.refusals[:top]:
        yield f"- {cell(_worth(each))}: {code(f'{each.producer} -> {each.consumer}')}"
    yield ""


def print_measured(module: ModuleFacts, console: Console, *, top: int | None) -> None:
    """Print them to a terminal; ``top`` limits each list."""
    from rich.padding import Padding
    from rich.text import Text

    measured = module.measured
    if measured is None:
        return
    words = Text.assemble((f"{_TITLE}: ", "bold"), _summary(measured))
    console.print(Padding(words, (1, 0, 0, 2)))
    known = _known(module)
    rows = [(_name(kernel, console), *_figures(kernel, measured)) for kernel in known[:top]]
    print_rows(console, (plural(len(known), "kernel"), *_HEAD), rows)
    print_hidden(console, 2, len(known), top, "kernel")
    for call in measured.calls[:top]:
        console.print(Padding(Text(safe(_call(call))), (0, 0, 0, 2)))
    if measured.refusals:
        console.print(Padding(Text(_title_of_refusals(measured), style="bold"), (1, 0, 0, 2)))
    for each in measured.refusals[:top]:
        begin, place = f"  {_worth(each)}  ", file_and_line(each.source)
        room = console.width - len(begin) - len(place) - 2
        names = squeeze(f"{each.producer} -> {each.consumer}", room)
        console.print(Text(f"{begin}{names}  {place}".rstrip(), no_wrap=True))


_HEAD = ("measured", "share", "model", "off by", "GB/s")


def _known(module: ModuleFacts) -> list[KernelFacts]:
    """Return the kernels that were measured, the slowest first."""
    known = [kernel for kernel in module.kernels if kernel.measured_us is not None]
    return sorted(known, key=lambda kernel: -kernel.time_us)


def _summary(measured: Measured) -> str:
    spread = f", {duration(measured.low_us)} to {duration(measured.high_us)}"
    runs = "1 run" if measured.runs == 1 else f"the median of {measured.runs:,} runs{spread}"
    scale = (
        ""
        if measured.scale == 1
        else f"; the model is that of a nominal CPU, times {measured.scale:.2g}"
    )
    return (
        f"{duration(measured.time_us)} ({runs}), {duration(measured.kernels_us)} of it in kernels, "
        f"{duration(measured.between_us)} between them{scale}"
    )


def _figures(kernel: KernelFacts, measured: Measured) -> Sequence[str]:
    """Return the figures in the order of the head."""
    found, took = kernel.measured_us or 0.0, kernel.measurement
    expected = took.expected_us if took is not None else None
    is_off = took is not None and took.is_off
    return (
        duration(found),
        f"{100 * found / (measured.kernels_us or 1):.0f}%",
        or_dash(expected, duration),
        _factor(found / expected) if is_off and expected else "",
        or_dash(kernel.bandwidth, _rate),
    )


def _call(call: MeasuredCall) -> str:
    held = plural(call.kernels, "kernel")
    return f"{duration(call.time_us)} in {call.name}, whose {held} the trace does not tell apart"


def _factor(ratio: float) -> str:
    return f"x{ratio:,.0f}" if ratio >= 9.95 else f"x{ratio:.2g}"


def _name(kernel: KernelFacts, console: Console) -> str:
    place = file_and_line(kernel.source)
    name = squeeze(kernel.name, max(16, console.width - 44 - len(place)))
    return f"{name}  {place}" if place else name


def _title_of_refusals(measured: Measured) -> str:
    rate = _rate(measured.bandwidth or 0.0)
    return f"What refusals cost at {rate} GB/s, the most that a kernel moves"


def _rate(bytes_per_us: float) -> str:
    """Return GB/s with three digits, or more in front of the point."""
    rate = bytes_per_us / 1000
    return f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.3g}"


def _worth(each: RefusalWorth) -> str:
    alike = f" x{each.count:,}" if each.count > 1 else ""
    return f"{duration(each.time_us)}, {size(each.bytes_saved)}{alike}"
