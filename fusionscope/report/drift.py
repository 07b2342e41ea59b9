"""What has moved where rules differ from a compiler, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.report.experiments import around_in_words
from fusionscope.words.section import Line, Lines, Section, Tone, line, lines
from fusionscope.words.text import duration, plural

if TYPE_CHECKING:
    from fusionscope.experiments.drift import Drift, Moved
    from fusionscope.verify.thresholds import FittingThreshold


def sections_of(drift: Drift) -> Iterator[Section]:
    """Yield the pairs on which the rules differ, and the thresholds that would fit."""
    if not drift.matched:
        agree = f"{drift.module}: the rules {drift.rules} agree with every pair"
        yield Section(blocks=(lines([agree]),), is_heading=True)
        return
    differ = f"the rules {drift.rules} differ on {plural(drift.matched, 'pair')}"
    programs = f"{plural(drift.compiled, 'program')} in {duration(drift.seconds * 1e6)}"
    yield Section(
        title=f"{drift.module}: {differ}, asked of {drift.compiler}",
        blocks=(lines([programs], Tone.QUIET),),
        is_heading=True,
    )
    for pair in drift.pairs:
        title = f"{pair.producer} -> {pair.consumer}"
        yield Section(title=title, blocks=(Lines(tuple(_pair(pair))),))


def _pair(pair: Moved) -> Iterator[Line]:
    rules = f"the rules {pair.book} of {pair.pass_name}"
    yield line(f"{pair.outcome}, but {pair.replayed} by {rules}")
    if not pair.around:
        yield line(pair.problem, Tone.WARNING)
        return
    yield line(f"cut out: {around_in_words(pair.around)}", Tone.QUIET)
    for threshold in pair.thresholds:
        yield line(_in_words(threshold, pair), Tone.GOOD)
    if not pair.thresholds:
        yield line(
            f"rules and compiler differ on {pair.differing} of {plural(pair.programs, 'program')}, "
            "and no change of one threshold makes them agree on all: another condition has changed",
            Tone.WARNING,
        )
        for agreement in pair.agreements:
            change = f"{agreement.before} -> {agreement.after}"
            yield line(f"agree with {agreement.what}: {change}", Tone.QUIET)


def _in_words(threshold: FittingThreshold, pair: Moved) -> str:
    least, most = threshold.least, threshold.most
    if least is None:
        fitting = f"{most} or less" if most is not None else "any"
    elif most is None:
        fitting = f"{least} or more"
    else:
        fitting = f"{least}" if least == most else f"{least} to {most}"
    programs = plural(pair.programs, "program")
    return (
        f"{threshold.rule}.{threshold.name}: {fitting} fits all {programs}; "
        f"{threshold.known}, as in the rules, fits {pair.programs - pair.differing}"
    )
