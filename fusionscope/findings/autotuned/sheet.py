"""The implementations that the compiler chose, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.autotuned.facts import Autotuned, Basis, GeneratorTime
from fusionscope.words.section import Entry, Section, lines, ranked, spans, strong
from fusionscope.words.text import duration, plural

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_BASES = {
    Basis.FIRST: ": nothing was timed, a card may choose otherwise",
    Basis.LOADED: ", loaded from results",
}


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the instructions for which the compiler chose an implementation."""
    tuned = module.find_all(Autotuned)
    if not tuned:
        return
    entries = [_entry(rank, instruction) for rank, instruction in enumerate(tuned[:top], 1)]
    yield Section(
        title="Autotuned",
        summary=spans(_summary(tuned)),
        blocks=(ranked("instruction", entries, len(tuned), ("source",)),),
    )


def _entry(rank: int, tuned: Autotuned) -> Entry:
    return Entry(
        label=f"{rank}.",
        name=strong(tuned.instruction),
        figures=(tuned.source or "",),
        lines=lines(_outcome(tuned)).lines,
    )


def _outcome(tuned: Autotuned) -> Iterator[str]:
    """Yield what was measured, and which code the final module has."""
    if tuned.generators:
        times = ", ".join(map(_time, tuned.generators))
        apart = f"; {tuned.margin:.2f} times apart" if tuned.margin is not None else ""
        near_tie = ", a near tie" if tuned.near_tie else ""
        yield f"measured: {times}{apart}{near_tie}"
    if tuned.choice:
        time = f"; {duration(tuned.choice_us)} when it was measured" if tuned.choice_us else ""
        yield f"chosen: {', '.join(filter(None, (tuned.choice, tuned.configuration)))}{time}"
    elif tuned.kernel is None:
        yield "the final module has no kernel of this name"
    elif tuned.emitter:
        yield f"in the final module: {tuned.emitter}"
    failures = [candidate.failure for candidate in tuned.candidates if candidate.failure]
    for failure in dict.fromkeys(failures):
        yield f"{plural(failures.count(failure), 'candidate')} {failure}"


def _time(best: GeneratorTime) -> str:
    candidates = plural(best.candidates, "candidate")
    failed = f", {best.failed:,} failed" if best.failed else ""
    time = "none ran" if best.best_us is None else duration(best.best_us)
    return f"{best.generator} {time} ({candidates}{failed})"


def _summary(tuned: Sequence[Autotuned]) -> str:
    near_ties = sum(instruction.near_tie for instruction in tuned)
    ties = f", {plural(near_ties, 'near tie')}" if near_ties else ""
    basis = _BASES.get(tuned[0].basis, "")
    return f"{plural(len(tuned), 'choice')} of the compiler{ties}{basis}"


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield that nothing was timed."""
    tuned = module.find_all(Autotuned)
    if tuned and tuned[0].basis is Basis.FIRST:
        yield Section(title="Autotuned", summary=spans(_summary(tuned)))
