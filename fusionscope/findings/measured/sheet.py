"""Measured times of kernels beside those of the model, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings import BRIEF
from fusionscope.findings.measured.facts import Measured, MeasuredCall
from fusionscope.words.section import Column, Entry, Section, Table, lines, ranked, spans
from fusionscope.words.text import duration, file_and_line, or_dash, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import KernelFacts, ModuleFacts

_FIGURES = ("measured", "share", "model", "off by", "GB/s")


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the measured kernels, the slowest first, and what refusals cost."""
    measured = module.find(Measured)
    if measured is None:
        return
    kernels = _measured_kernels(module)
    visible = kernels[:top]
    table = Table(
        columns=(
            Column(plural(len(kernels), "kernel"), is_flexible=True),
            *(Column(title, is_number=True) for title in _FIGURES),
        ),
        rows=tuple((_name(kernel), *_figures(kernel, measured)) for kernel in visible),
        noun="kernel",
        hidden=len(kernels) - len(visible),
    )
    calls = lines(map(_call, measured.calls[:top]))
    yield Section(title="Measured", summary=spans(_summary(measured)), blocks=(table, calls))
    if measured.refusals:
        yield _refusals(measured, top)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the slowest kernels."""
    return sheet(module, BRIEF)


def _refusals(measured: Measured, top: int | None) -> Section:
    refusals = measured.refusals
    entries = [
        Entry(
            label=duration(refusal.time_us),
            name=spans(f"{refusal.producer} -> {refusal.consumer}"),
            figures=(
                size(refusal.bytes_saved),
                f"x{refusal.count:,}" if refusal.count > 1 else "",
                file_and_line(refusal.source),
            ),
            is_cut=True,
        )
        for refusal in refusals[:top]
    ]
    rate = _rate(measured.bandwidth or 0.0)
    return Section(
        title=f"What refusals cost at {rate} GB/s, the most that a kernel moves",
        blocks=(ranked("refusal", entries, len(refusals), ("bytes", "alike", "source")),),
    )


def _measured_kernels(module: ModuleFacts) -> list[KernelFacts]:
    kernels = [kernel for kernel in module.kernels if kernel.measured_us is not None]
    return sorted(kernels, key=lambda kernel: -kernel.time_us)


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
    """Return the figures in the order of the columns."""
    time_us, measurement = kernel.measured_us or 0.0, kernel.measurement
    expected = measurement.expected_us if measurement is not None else None
    is_off = measurement is not None and measurement.is_off
    return (
        duration(time_us),
        f"{100 * time_us / (measured.kernels_us or 1):.0f}%",
        or_dash(expected, duration),
        _factor(time_us / expected) if is_off and expected else "",
        or_dash(kernel.bandwidth, _rate),
    )


def _call(call: MeasuredCall) -> str:
    kernels = plural(call.kernels, "kernel")
    return f"{duration(call.time_us)} in {call.name}, whose {kernels} the trace does not tell apart"


def _factor(ratio: float) -> str:
    return f"x{ratio:,.0f}" if ratio >= 9.95 else f"x{ratio:.2g}"


def _name(kernel: KernelFacts) -> str:
    return f"{kernel.name}  {file_and_line(kernel.source)}".rstrip()


def _rate(bytes_per_us: float) -> str:
    """Return GB/s with three digits, or more in front of the point."""
    rate = bytes_per_us / 1000
    return f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.3g}"
