"""Captured dumps in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Line, Lines, Section, Table, Tone, line, lines
from fusionscope.words.text import plural, size

if TYPE_CHECKING:
    from fusionscope.capture.capture import Captured
    from fusionscope.facts.result import ModuleFacts, TimeEstimate

_WIDTH = 60  # the widest list of arguments
_FIGURES = ("launches", "bytes", "fused", "duplicated", "not fused", "time")
_ESTIMATES = "times are estimates by the compiler's cost model; for library calls, a lower bound"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A row for one of several dumps.

    ``facts`` are those of its module, None if the compiler did not finish; ``estimate`` is by the
    cost model of a GPU, None for other devices.
    """

    name: str
    facts: ModuleFacts | None = None
    estimate: TimeEstimate | None = None


def captured_section(captured: Captured, *, is_explained: bool = False) -> Section:
    """Return how a program was compiled. Where an explanation follows (``is_explained``), that says
    why the compiler did not finish.
    """
    is_said = is_explained and captured.compile_s is None
    return Section(
        title=f"{captured.program} for {captured.target}",
        blocks=(Lines(tuple(_lines(captured, captured.problem if not is_said else ""))),),
        is_heading=True,
    )


def _lines(captured: Captured, problem: str) -> Iterator[Line]:
    version = captured.versions.get("jaxlib", "an unknown jaxlib")
    yield line(f"jaxlib {version}, {_arguments(captured)}")
    if captured.program_flags:
        yield line(f"with the XLA_FLAGS that it sets: {captured.program_flags}")
    yield line(f"in {captured.directory}")
    for note in captured.notes:
        yield line(f"note: {note}", Tone.WARNING)
    if captured.profile is not None:
        yield line(f"ran, with a profile in {captured.profile}")
    if problem:
        ended = "" if captured.compile_s is not None else "did not finish: "
        yield line(f"{ended}{problem}", Tone.WARNING)


def _arguments(captured: Captured) -> str:
    """Return their shapes, or their number and size if the shapes do not fit into a line."""
    count = len(captured.arguments)
    shapes = ", ".join(captured.arguments)
    if len(shapes) <= _WIDTH:
        return plural(count, "argument") + (f": {shapes}" if shapes else "")
    total = captured.argument_bytes
    return plural(count, "array") + (f", {size(total)}" if total is not None else "")


def comparison_section(compiled: Sequence[Compiled]) -> Section:
    """Return several dumps in one table."""
    is_timed = any(program.estimate is not None for program in compiled)
    titles = _FIGURES if is_timed else _FIGURES[:-1]
    columns = (Column("device", wraps=True), *(Column(title, is_number=True) for title in titles))
    rows = tuple((program.name, *_figures(program)[: len(titles)]) for program in compiled)
    notes = lines([_ESTIMATES] if is_timed else [], Tone.QUIET)
    return Section(blocks=(Table(columns=columns, rows=rows, noun="device"), notes))


def _figures(compiled: Compiled) -> list[str]:
    facts, estimate = compiled.facts, compiled.estimate
    if facts is None:
        return ["did not finish", *[""] * (len(_FIGURES) - 1)]
    totals, relation = facts.summary, f"{facts.relation} " if facts.relation else ""
    return [
        f"{relation}{totals.launches:,}",
        f"{relation}{size(totals.bytes_moved)}",
        *(f"{totals.outcomes[outcome]:,}" for outcome in ("fused", "duplicated", "not-fused")),
        f"{estimate.microseconds:,.2f} µs" if estimate is not None else "",
    ]
