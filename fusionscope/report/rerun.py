"""The result of a plan in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.verify import rules_in_words
from fusionscope.words.section import (
    Block,
    Column,
    Line,
    Lines,
    Section,
    Table,
    Tone,
    line,
    table_of,
)
from fusionscope.words.text import duration, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.suggestions import Figures
    from fusionscope.rerun.measuring import Ratio
    from fusionscope.rerun.profiled import MeasuredKernels
    from fusionscope.rerun.requests import Request
    from fusionscope.rerun.rerun import Rerun
    from fusionscope.rerun.running import Measurement, Timing
    from fusionscope.rerun.trial import Trial, Tried

_PAIRS = (Column("producer -> consumer", wraps=True), Column("outcome"))
_KERNELS = (
    Column("time", is_number=True),
    Column("kernel", is_flexible=True),
    Column("bytes", is_number=True),
)
_VARIANTS = (
    Column("variant"),
    Column("launches", is_number=True),
    Column("bytes moved", is_number=True),
    Column("time", is_number=True),
    Column("numbers"),
    Column("verdict"),
)
_DROPS_DONATIONS = (
    "the hook of this jaxlib drops input_output_alias: donated arguments are not reused, and take "
    "more memory; jaxlib 0.11 keeps it"
)


def sections_of(trial: Trial, top: int | None) -> Iterator[Section]:
    """Yield each variant, then all in one table; ``top`` limits every list (None: no limit)."""
    if trial.rules is not None:
        yield Section(blocks=(Lines(tuple(rules_in_words.rules_line(trial.rules))),))
    for attempt in trial.variants:
        yield from _variant(trial, attempt, top)
    if len(trial.variants) > 1:
        rows = tuple(map(_row, trial.variants))
        yield Section(blocks=(Table(columns=_VARIANTS, rows=rows, noun="variant"),))
    if trial.not_run:
        yield Section(blocks=(Lines((line(f"not run: {trial.not_run}", Tone.WARNING),)),))


def _variant(trial: Trial, attempt: Tried, top: int | None) -> Iterator[Section]:
    rerun = attempt.rerun
    blocks: list[Block] = [Lines(tuple(_figures_lines(attempt)))]
    if rerun.variant is not None:
        blocks += kernel_blocks(attempt.kernels, attempt.not_profiled, top)
        blocks.append(Lines(tuple(_verdict_lines(rerun))))
        if attempt.plan_file is not None:
            words = f'with fusionscope.apply("{attempt.plan_file}"): jax compiles it so'
            blocks.append(Lines((line(words, Tone.QUIET),)))
    yield Section(title=f"{trial.module}: {rerun.plan}", blocks=tuple(blocks), is_heading=True)
    for title, pairs in (("Changed", rerun.changed), ("Not as planned", rerun.unplanned)):
        if pairs:
            rows = [
                (f"{pair.producer} -> {pair.consumer}", f"{pair.before} → {pair.after}")
                for pair in pairs[:top]
            ]
            table = table_of("pair", _PAIRS, rows, len(pairs), has_head=False)
            yield Section(title=title, blocks=(table,))


def _figures_lines(attempt: Tried) -> Iterator[Line]:
    """Yield launches, bytes and time of both programs, and how their numbers compare."""
    rerun, before, after = attempt.rerun, attempt.rerun.baseline, attempt.rerun.variant
    if after is None:
        yield line("the compiler did not finish", Tone.BAD)
        yield line(rerun.problem)
        return
    yield line(
        f"launches {before.launches:,} → {after.launches:,}    "
        f"bytes moved {size(before.bytes_moved)} → {size(after.bytes_moved)}"
    )
    if not rerun.is_as_predicted and rerun.predicted is not None:
        time_us = rerun.estimates[1].microseconds if rerun.estimates is not None else None
        words = _figures(after.launches, after.bytes_moved, time_us)
        yield line(f"not as predicted: predicted {_of(rerun.predicted)}; made {words}", Tone.BAD)
    if attempt.measurement is None or attempt.measurement.on_cpu:
        yield from _estimates(rerun)
    if attempt.measurement is not None:
        yield from _measurement(attempt.measurement)


def _estimates(rerun: Rerun) -> Iterator[Line]:
    if rerun.estimates is None:
        return
    old, new = rerun.estimates
    model = "by the compiler's cost model" if rerun.has_model else "for a nominal CPU"
    words = f"estimated {model} {old.microseconds:,.2f} → {new.microseconds:,.2f} µs"
    if rerun.has_model and (old.floor_launches or new.floor_launches):
        words += (
            f", a lower bound for {old.floor_launches} → "
            f"{plural(new.floor_launches, 'launch')} that it does not cover"
        )
    yield line(words)


def _measurement(measurement: Measurement) -> Iterator[Line]:
    if measurement.problem:
        yield line(f"did not run: {measurement.problem}", Tone.BAD)
        return
    tone = Tone.BAD if measurement.numbers == "different" else Tone.GOOD
    where = " on a CPU" if measurement.on_cpu else ""
    yield line(f"numbers{where}: {measurement.numbers}{farthest(measurement)}", tone)
    if measurement.timing is not None:
        yield line(timing_words(measurement.timing))


def _verdict_lines(rerun: Rerun) -> Iterator[Line]:
    """Yield whether the new module is what was asked for."""
    if rerun.is_same:
        yield line("the same kernels as in the dump", Tone.GOOD)
    for request in rerun.requests:
        tone = Tone.BAD if request.problem else Tone.GOOD
        yield line(f"{request.words}: {_outcome(request)}", tone)
    if rerun.injection.program is not None:
        yield line("compiled as the compiler decides, without a plan")
    elif not rerun.has_plan:
        yield line("compiled with these flags, without a plan")
    elif rerun.holds:
        yield line("the final module matches the plan", Tone.GOOD)
    elif rerun.is_as_planned:
        yield line("the final module is not what was asked for", Tone.BAD)
    else:
        yield line("the final module does not match the plan", Tone.BAD)
    if rerun.drops_donations:
        yield line(_DROPS_DONATIONS, Tone.WARNING)
    if rerun.divergence is not None:
        yield line(f"the compiler took a different module: {rerun.divergence.theirs}")
    if rerun.captured is not None:
        yield line(f"dumped in {rerun.captured.directory}", Tone.QUIET)


def _of(figures: Figures) -> str:
    return _figures(figures.launches, figures.bytes_moved, figures.time_us)


def _figures(launches: int, bytes_moved: int, time_us: float | None) -> str:
    words = f"{plural(launches, 'launch')}, {plural(bytes_moved, 'byte')}"
    return words if time_us is None else f"{words}, {time_us:,.2f} µs"


def _outcome(request: Request) -> str:
    """Say whether a request is done, for how many pairs, and why not."""
    if request.problem:
        share = f" for {request.missed} of {request.pairs} pairs" if request.pairs > 1 else ""
        return f"not done{share}, {request.problem}"
    if not request.pairs:
        return "done, and no pair changes"
    return f"done, {plural(request.pairs, 'pair')}"


def kernel_blocks(
    measured: MeasuredKernels | None, not_profiled: str, top: int | None
) -> Iterator[Block]:
    """Yield the times of all kernels in two programs, and those that only one of them has, or why
    there are none.
    """
    if not_profiled:
        yield Lines((line(f"kernels were not measured: {not_profiled}", Tone.WARNING),))
    if measured is None or not (measured.gone or measured.made):
        return
    times = f"{duration(measured.before_us)} → {duration(measured.after_us)}"
    yield Lines((line(f"in kernels {times}, the medians of a profile"),))
    for title, kernels in (("no longer", measured.gone), ("instead", measured.made)):
        if not kernels:
            continue
        timed = [kernel.time_us for kernel in kernels if kernel.time_us is not None]
        total = duration(fsum(timed)) if timed else "which the trace does not tell apart"
        yield Lines((line(f"{title} {plural(len(kernels), 'kernel')}, {total}"),))
        rows = [
            (
                "?" if kernel.time_us is None else duration(kernel.time_us),
                kernel.name,
                size(kernel.bytes_moved),
            )
            for kernel in kernels[:top]
        ]
        yield table_of("kernel", _KERNELS, rows, len(kernels), has_head=False)


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


def _row(attempt: Tried) -> tuple[str, ...]:
    rerun, measurement = attempt.rerun, attempt.measurement
    timing = measurement.timing if measurement is not None else None
    ran = measurement is not None and not measurement.problem
    return (
        attempt.name,
        f"{rerun.variant.launches:,}" if rerun.variant else "-",
        size(rerun.variant.bytes_moved) if rerun.variant else "-",
        f"{timing.ratio.value:.3f}" if timing else "-",
        str(measurement.numbers) if measurement is not None and ran else "-",
        str(timing.verdict) if timing else "",
    )
