"""The candidates that the compiler's autotuner timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, code, duration, plural, print_hidden, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.findings.autotuned.find import Autotuned, GeneratorTime

_TITLE = "Autotuned"


def print_autotuned(tuned: Sequence[Autotuned], console: Console, *, top: int | None) -> None:
    """Print the instructions that were timed; ``top`` limits the list (None: no limit)."""
    from rich.padding import Padding
    from rich.text import Text

    if not tuned:
        return
    console.print(Text.assemble((f"\n  {_TITLE}", "bold"), f"  {_summary(tuned)}"))
    for rank, each in enumerate(tuned[:top], 1):
        line = Text(f"  {rank}. ")
        line.append(safe(each.instruction), style="bold")
        line.append(f"  {safe(each.source or '')}".rstrip())
        console.print(line)
        for words in words_on(each):
            console.print(Padding(Text(safe(words)), (0, 0, 0, 5)))
    print_hidden(console, 2, len(tuned), top, "instruction")


def to_markdown(tuned: Sequence[Autotuned], top: int | None) -> Iterator[str]:
    if not tuned:
        return
    yield f"{_TITLE}: {_summary(tuned)}.\n"
    yield "| instruction | measured | source |\n|---|---|---|"
    for each in tuned[:top]:
        measured = cell("; ".join(words_on(each)))
        yield f"| {code(each.instruction)} | {measured} | {cell(each.source or '')} |"
    yield ""


def words_on(tuned: Autotuned) -> Iterator[str]:
    """Yield what was measured, and which code the final module has."""
    times = ", ".join(map(_time, tuned.generators)) or "no candidate"
    apart = f"; {tuned.margin:.2f} times apart" if tuned.margin is not None else ""
    near = ", a near tie" if tuned.near_tie else ""
    yield f"measured: {times}{apart}{near}"
    if tuned.kernel is None:
        yield "the final module has no kernel of this name"
    elif tuned.emitter:
        yield f"in the final module: {tuned.emitter}"
    failures = dict.fromkeys(each.failure for each in tuned.candidates if each.failure)
    for failure in failures:
        count = sum(each.failure == failure for each in tuned.candidates)
        yield f"{plural(count, 'candidate')} {failure}"


def _time(best: GeneratorTime) -> str:
    tried = plural(best.candidates, "candidate")
    failed = f", {best.failed:,} failed" if best.failed else ""
    time = "none ran" if best.best_us is None else duration(best.best_us)
    return f"{best.generator} {time} ({tried}{failed})"


def _summary(tuned: Sequence[Autotuned]) -> str:
    near = sum(each.near_tie for each in tuned)
    ties = f", {plural(near, 'near tie')}" if near else ""
    return f"{plural(len(tuned), 'instruction')} timed by the compiler{ties}"
