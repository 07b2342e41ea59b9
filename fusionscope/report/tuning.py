"""The changes that ``tune`` tried, in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.report.rerun import kernel_blocks, timing_words
from fusionscope.verify import rules_in_words
from fusionscope.words.section import Column, Line, Lines, Section, Table, Tone, line, table_of
from fusionscope.words.text import duration, plural

if TYPE_CHECKING:
    from fusionscope.tune.journal import Attempt
    from fusionscope.tune.results import Best, Tuning

_CHANGE = Column("change", wraps=True)
_ESTIMATED = (Column("estimate", is_number=True), _CHANGE)
_MEASURED = (
    Column("time", is_number=True),
    Column("compile", is_number=True),
    Column("numbers"),
    Column("verdict", wraps=True),
    _CHANGE,
)


def sections_of(tuning: Tuning, output: Path, top: int) -> Iterator[Section]:
    """Yield the changes that were tried, and the best of them, which is in the file ``output``."""
    yield Section(
        title=f"{tuning.module}, {plural(len(tuning.attempts), 'change')} tried",
        blocks=(
            Lines(tuple(rules_in_words.rules_line(tuning.rules))),
            _table(tuning, top),
            Lines(tuple(_rest(tuning, top))),
        ),
        is_heading=True,
    )
    if tuning.best is not None:
        yield _best(tuning.best, output, top)


def _table(tuning: Tuning, top: int) -> Table:
    """Return the changes, the best first: estimated if there is no device."""
    estimated = sorted(
        (attempt.estimated, attempt.changes)
        for attempt in tuning.attempts
        if attempt.estimated is not None
    )
    if estimated:
        rows = [(f"{ratio:.3f}", changes) for ratio, changes in estimated[:top]]
        return table_of("change", _ESTIMATED, rows, len(estimated))
    measured = _rank(tuning)
    rows_of = (_measured(attempt) for attempt in measured[:top])
    return table_of("change", _MEASURED, [row for row in rows_of if row], len(measured))


def _measured(attempt: Attempt) -> tuple[str, ...]:
    if attempt.ratio is None:
        return ()
    return (
        f"{attempt.ratio.value:.3f}",
        f"{attempt.compile_s or 0:.2f} s",
        str(attempt.numbers),
        str(attempt.verdict) if attempt.is_confirmation else f"{attempt.verdict} (once)",
        attempt.changes,
    )


def _rest(tuning: Tuning, top: int) -> Iterator[Line]:
    """Yield what was not measured, and whether nothing was faster."""
    failed = [attempt for attempt in tuning.attempts if attempt.problem]
    for attempt in failed[:top]:
        yield line(f"{attempt.changes}: {attempt.problem}", Tone.QUIET)
    same = sum(attempt.is_same for attempt in tuning.attempts)
    more = f", {len(failed) - top} more cannot be compiled or run" if len(failed) > top else ""
    yield line(f"{plural(same, 'change')} with identical kernels{more}", Tone.QUIET)
    if tuning.left:
        yield line(f"{plural(tuning.left, 'change')} not tried: --budget SECONDS", Tone.WARNING)
    if tuning.best is None:
        beyond = "beyond noise" if tuning.is_measured else "by the compiler's cost model"
        yield line(f"nothing was faster {beyond}", Tone.WARNING)


def _rank(tuning: Tuning) -> list[Attempt]:
    """Return what was timed: the best first, then what was measured again in another process, then
    what was compiled and timed only once.
    """
    confirmed = [attempt for attempt in tuning.attempts if attempt.is_confirmation]
    names = {
        attempt_ranked.changes for attempt_ranked in confirmed if attempt_ranked.ratio is not None
    }
    last = {attempt.changes: attempt for attempt in tuning.attempts if not attempt.is_confirmation}
    once = [
        attempt_ranked for attempt_ranked in last.values() if attempt_ranked.changes not in names
    ]
    best = tuning.best.words if tuning.best is not None else ""
    timed = [
        (attempt_ranked.changes != best, attempt_ranked.ratio.value, attempt_ranked)
        for attempt_ranked in confirmed
        if attempt_ranked.ratio
    ]
    other_attempts = [
        (attempt_ranked.ratio.value, attempt_ranked)
        for attempt_ranked in once
        if attempt_ranked.ratio
    ]
    return [
        *(attempt_ranked for *_, attempt_ranked in sorted(timed, key=lambda row: row[:2])),
        *(attempt_ranked for _, attempt_ranked in sorted(other_attempts, key=lambda row: row[0])),
    ]


def _best(best: Best, output: Path, top: int) -> Section:
    ablations = (
        line(f"without “{ablation.change}”: {ablation.ratio:.3f} of the best time")
        for ablation in best.ablations
    )
    return Section(
        title=f"best: {best.words}",
        blocks=(
            Lines(tuple(_figures(best))),
            *kernel_blocks(best.kernels, best.not_profiled, top),
            Lines((*ablations, line(f"written to {output}", Tone.QUIET))),
        ),
        is_heading=True,
    )


def _figures(best: Best) -> Iterator[Line]:
    if best.estimates_us is not None:
        before, after = best.estimates_us
        words = f"{duration(before)} → {duration(after)}, ratio {after / before:.3f}"
        yield line(f"estimated time {words}; compiled, not measured", Tone.GOOD)
    if best.measurement is not None and best.measurement.timing is not None:
        yield line(timing_words(best.measurement.timing), Tone.GOOD)
    if best.measurement is not None and best.compile_s is not None:
        before, after = best.compile_s
        numbers = best.measurement.numbers
        yield line(f"numbers: {numbers}; compile time {before:.2f} → {after:.2f} s")
