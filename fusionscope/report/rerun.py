"""The result of a plan as JSON and on a terminal."""

from __future__ import annotations

import math
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.verify import rules_in_words as rules_used
from fusionscope.words.text import duration, plural, print_hidden, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.suggestions import Figures
    from fusionscope.rerun.measuring import Ratio
    from fusionscope.rerun.profiled import MeasuredKernels
    from fusionscope.rerun.requests import Request
    from fusionscope.rerun.rerun import Rerun
    from fusionscope.rerun.running import Measurement, Timing
    from fusionscope.rerun.trial import Trial, Tried


def print_trial(trial: Trial, console: Console, top: int) -> None:
    from rich.text import Text

    rules_used.print_rules(trial.rules, console)
    for attempt in trial.variants:
        _print_tried(trial, attempt, console, top)
    if len(trial.variants) > 1:
        _print_table(trial, console)
    if trial.not_run:
        console.print(Text(f"  not run: {safe(trial.not_run)}", style="yellow"))


def _print_tried(trial: Trial, attempt: Tried, console: Console, top: int) -> None:
    from rich.text import Text

    from fusionscope.facts.suggestions import Figures

    rerun = attempt.rerun
    console.print(Text(f"{safe(trial.module)}: {safe(rerun.plan)}", style="bold"))
    if rerun.variant is None:
        console.print(Text("  the compiler did not finish", style="red"))
        console.print(Text(f"  {safe(rerun.problem)}"))
        return
    before, after = rerun.baseline, rerun.variant
    console.print(
        Text(
            f"  launches {before.launches:,} → {after.launches:,}    "
            f"bytes moved {size(before.bytes_moved)} → {size(after.bytes_moved)}"
        )
    )
    if not rerun.is_as_predicted and rerun.predicted is not None:
        time_us = rerun.estimates[1].microseconds if rerun.estimates is not None else None
        figures = Figures(after.launches, after.bytes_moved, time_us)
        words = f"predicted {_figures(rerun.predicted)}; made {_figures(figures)}"
        console.print(Text(f"  not as predicted: {words}", style="red"))
    if rerun.estimates is not None and attempt.measurement is None:
        old, new = rerun.estimates
        model = "by the compiler's cost model" if rerun.is_gpu else "for a nominal CPU"
        words = f"  estimated {model} {old.microseconds:,.2f} → {new.microseconds:,.2f} µs"
        if rerun.is_gpu and (old.floor_launches or new.floor_launches):
            words += (
                f", a lower bound for {old.floor_launches} → "
                f"{plural(new.floor_launches, 'launch')} that it does not cover"
            )
        console.print(Text(words))
    if attempt.measurement is not None:
        _print_measurement(attempt.measurement, console)
    print_kernels(attempt.kernels, attempt.not_profiled, console, top)
    _print_verdict(rerun, console)
    if rerun.drops_donations:
        words = (
            "  the hook of this jaxlib drops input_output_alias: donated arguments are not reused, "
            "and take more memory; jaxlib 0.11 keeps it"
        )
        console.print(Text(words, style="yellow"))
    if rerun.divergence is not None:
        console.print(
            Text(f"  the compiler took a different module: {safe(rerun.divergence.theirs)}")
        )
    for title, pairs in (("changed", rerun.changed), ("not as planned", rerun.unplanned)):
        if pairs:
            console.print(Text(f"\n  {title.capitalize()}", style="bold"))
        for pair in pairs[:top]:
            console.print(
                Text(
                    f"  {safe(pair.producer)} -> {safe(pair.consumer)}  "
                    f"{pair.before} → {pair.after}"
                )
            )
        print_hidden(console, 2, len(pairs), top, "pair")
    if rerun.captured is not None:
        console.print(Text(f"  dumped in {safe(str(rerun.captured.directory))}", style="dim"))


def _print_verdict(rerun: Rerun, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if rerun.is_same:
        console.print(Text("  the same kernels as in the dump", style="green"))
    for request in rerun.requests:
        style = "red" if request.problem else "green"
        line = Text(f"{safe(request.words)}: {safe(_outcome(request))}", style=style)
        console.print(Padding(line, (0, 0, 0, 2)))
    if not rerun.has_plan:
        console.print(Text("  compiled with these flags, without a plan"))
    elif rerun.holds:
        console.print(Text("  the final module matches the plan", style="green"))
    elif rerun.is_as_planned:
        console.print(Text("  the final module is not what was asked for", style="red"))
    else:
        console.print(Text("  the final module does not match the plan", style="red"))


def _figures(figures: Figures) -> str:
    words = f"{plural(figures.launches, 'launch')}, {plural(figures.bytes_moved, 'byte')}"
    return words if figures.time_us is None else f"{words}, {figures.time_us:,.2f} µs"


def _outcome(request: Request) -> str:
    """Say whether a request is done, for how many pairs, and why not."""
    if request.problem:
        share = f" for {request.missed} of {request.pairs} pairs" if request.pairs > 1 else ""
        return f"not done{share}, {request.problem}"
    if not request.pairs:
        return "done, and no pair changes"
    return f"done, {plural(request.pairs, 'pair')}"


def _print_measurement(measurement: Measurement, console: Console) -> None:
    from rich.text import Text

    if measurement.problem:
        console.print(Text(f"  did not run: {safe(measurement.problem)}", style="red"))
        return
    style = "red" if measurement.numbers == "different" else "green"
    console.print(Text(f"  numbers: {measurement.numbers}{farthest(measurement)}", style=style))
    timing = measurement.timing
    if timing is not None:
        console.print(Text(f"  {timing_words(timing)}"))


def print_kernels(
    kernels_measured: MeasuredKernels | None, not_profiled: str, console: Console, top: int
) -> None:
    """Print the times of all kernels in two programs, and those that only one of them has, or why
    there are none.
    """
    from rich.text import Text

    if not_profiled:
        words = f"  kernels were not measured: {safe(not_profiled)}"
        console.print(Text(words, style="yellow"))
    if kernels_measured is None or not (kernels_measured.gone or kernels_measured.made):
        return
    times = f"{duration(kernels_measured.before_us)} → {duration(kernels_measured.after_us)}"
    console.print(Text(f"  in kernels {times}, the medians of a profile"))
    for title, kernels in (
        ("no longer", kernels_measured.gone),
        ("instead", kernels_measured.made),
    ):
        if kernels:
            kernel_times = [kernel.time_us for kernel in kernels if kernel.time_us is not None]
            total = (
                duration(fsum(kernel_times))
                if kernel_times
                else "which the trace does not tell apart"
            )
            console.print(Text(f"  {title} {plural(len(kernels), 'kernel')}, {total}"))
        for kernel in kernels[:top]:
            time = "?" if kernel.time_us is None else duration(kernel.time_us)
            line = f"  {time:>9}  {safe(kernel.name)}  {size(kernel.bytes_moved)}"
            console.print(Text(line), no_wrap=True)
        print_hidden(console, 2, len(kernels), top, "kernel")


def timing_words(timing: Timing) -> str:
    from fusionscope.rerun.measuring import Speed

    times = f"time {_microseconds(timing.baseline_ns)} → {_microseconds(timing.variant_ns)} µs"
    if timing.speed is Speed.UNCLEAR:  # one run has no interval
        return f"{times}, {plural(timing.runs, 'run')}: {_verdict(timing)}"
    return (
        f"{times}, {_ratio(timing.ratio)} of it ({plural(timing.runs, 'run')}, "
        f"noise {_ratio(timing.noise)}): "
        f"{_verdict(timing)}"
    )


def _verdict(timing: Timing) -> str:
    from fusionscope.rerun.measuring import Speed

    if not timing.is_same_program:
        return timing.verdict
    if timing.speed in (Speed.SAME, Speed.UNCLEAR):
        return f"{timing.speed} (the same kernels)"
    return "not due to fusion: the same kernels, whose instructions may be in another order"


def farthest(measurement: Measurement) -> str:
    """Return the difference of the least accurate result."""
    off = [result for result in measurement.results if not result.is_equal]
    if not off:
        return ""
    worst = max(
        off, key=lambda result: math.inf if result.difference is None else result.difference
    )
    if worst.difference is None:
        return f", one of {worst.dtype} is not a number where the other is"
    if worst.epsilon is None:
        return f", {worst.difference:.1%} of the elements of one of {worst.dtype}"
    words = f", at most {worst.difference:.1e} of the largest"
    if worst.baseline_error is not None and worst.variant_error is not None:
        words += (
            f"; error against a 64-bit run {worst.baseline_error:.1e} → {worst.variant_error:.1e}"
        )
    return words


def _microseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:,.1f}"


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _print_table(trial: Trial, console: Console) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("variant", "launches", "bytes moved", "time", "numbers", "verdict"):
        table.add_column(
            name, justify="right" if name in ("launches", "bytes moved", "time") else "left"
        )
    for attempt in trial.variants:
        rerun, measurement = attempt.rerun, attempt.measurement
        timing = measurement.timing if measurement is not None else None
        ran = measurement is not None and not measurement.problem
        table.add_row(
            safe(attempt.name),
            f"{rerun.variant.launches:,}" if rerun.variant else "-",
            size(rerun.variant.bytes_moved) if rerun.variant else "-",
            f"{timing.ratio.value:.3f}" if timing else "-",
            str(measurement.numbers) if measurement is not None and ran else "-",
            str(timing.verdict) if timing else "",
        )
    console.print(table)
