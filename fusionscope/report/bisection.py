"""The fusions that change results or times, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.bisect.result import By
from fusionscope.report.rerun import farthest
from fusionscope.words.section import Column, Line, Lines, Section, Tone, line, table_of
from fusionscope.words.text import duration, file_and_line, plural

if TYPE_CHECKING:
    from fusionscope.bisect.reproducer import Reproducer
    from fusionscope.bisect.result import Bisection, Cost, Culprit
    from fusionscope.rerun.running import ResultDifference

_AMPLIFIES = (
    "the reference itself is far from a run in 64 bits: the program amplifies rounding, so what is "
    "found may be no more than that"
)
_PAIRS = (Column("pair", wraps=True),)
_OPERATIONS = (Column("operation"), Column("opcode"), Column("shape"), Column("line"))


def sections_of(bisection: Bisection, top: int) -> Iterator[Section]:
    """Yield what was compared, the smallest parts that make the difference, and each alone."""
    against = f", against {bisection.reference}" if bisection.reference else ""
    yield Section(
        title=f"{bisection.module}, {plural(bisection.kernels, 'kernel')}{against}",
        blocks=(Lines(tuple(_whole(bisection))),),
        is_heading=True,
    )
    if bisection.problem:
        return
    yield from (_culprit(culprit, top) for culprit in bisection.found)
    if texts := [*_rest(bisection)]:
        yield Section(blocks=(Lines(tuple(texts)),))
    for culprit in bisection.found:
        if culprit.reproducer is not None:
            yield _alone(culprit.reproducer)


def _whole(bisection: Bisection) -> Iterator[Line]:
    if bisection.crash:
        yield line(f"it crashes: {bisection.crash}", Tone.BAD)
    elif bisection.results:
        shows_in, runs = bisection.shows_in, bisection.runs
        is_wrong = bool(shows_in) and not bisection.problem
        share = f" ({shows_in} of {runs} runs)" if is_wrong and shows_in != runs else ""
        tone = Tone.BAD if is_wrong else Tone.PLAIN
        yield line(f"{_numbers(bisection.results)}{share}", tone)
    if bisection.problem:
        yield line(bisection.problem, Tone.WARNING)
        return
    failed = f", {bisection.failed} of them could not be compiled or run"
    parts = f"{plural(bisection.tried, 'part')} of the plan tried"
    yield line(f"{parts}{failed if bisection.failed else ''}", Tone.QUIET)
    if bisection.amplifies:
        yield line(_AMPLIFIES, Tone.WARNING)


def _culprit(culprit: Culprit, top: int) -> Section:
    count = len(culprit.operations)
    share = "" if count == culprit.of else f", {count} of its {culprit.of} operations"
    pairs = [
        (f"{pair.producer} {'beside' if pair.are_siblings else '->'} {pair.consumer}",)
        for pair in culprit.pairs[:top]
    ]
    rows = [
        (operation.name, operation.opcode, operation.shape, file_and_line(operation.source))
        for operation in culprit.operations[:top]
    ]
    return Section(
        title=f"{culprit.kernel}{share}",
        blocks=(
            table_of("pair", _PAIRS, pairs, len(culprit.pairs), has_head=False),
            table_of("operation", _OPERATIONS, rows, count, has_head=False),
        ),
        is_heading=True,
    )


def _rest(bisection: Bisection) -> Iterator[Line]:
    """Yield how to keep a pair apart, and what the part costs, or computes, alone."""
    pairs = [pair for culprit in bisection.found for pair in culprit.pairs if not pair.are_siblings]
    if len(pairs) == 1:
        words = f"{pairs[0].producer} -> {pairs[0].consumer}"
        yield line(f"to keep them apart: rerun --forbid '{words}'", Tone.QUIET)
    if bisection.cost is not None:
        yield line(_cost_words(bisection.cost, bisection.by))
    elif bisection.alone:
        yield line(f"with nothing else fused: {_numbers(bisection.alone)}")


def _alone(reproducer: Reproducer) -> Section:
    texts = [line(text, Tone.QUIET) for text in reproducer.output]
    if reproducer.problem:
        texts.append(line(reproducer.problem, Tone.WARNING))
    elif not reproducer.differs:
        texts.append(line("alone, the kernel computes the same as unfused", Tone.WARNING))
    title = f"alone: python {reproducer.directory / 'reproduce.py'}"
    return Section(title=title, blocks=(Lines(tuple(texts)),), is_heading=True)


def _numbers(results: Sequence[ResultDifference]) -> str:
    """Return how results compare, and the difference of the least accurate one."""
    from fusionscope.rerun.running import Measurement

    measured = Measurement("", tuple(results))
    return f"{measured.numbers}{farthest(measured)}"


def _cost_words(cost: Cost, by: By) -> str:
    whole, without, unfused = (
        duration(seconds * 1e6) for seconds in (cost.whole_s, cost.without_s, cost.unfused_s)
    )
    what = "compile time" if by is By.COMPILE_TIME else "time"
    return f"{what} {whole}, without this {without}; without any fusion {unfused}"
