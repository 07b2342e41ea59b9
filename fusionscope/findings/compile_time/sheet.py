"""The compile time of a module by pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.text import code, duration, plural, print_hidden, safe, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.findings.compile_time.find import CompileTime, PassCost

_TITLE = "Compile time"
_NAMED = 2  # passes on the first screen
_SHORT_US = 500_000  # nobody asks why


def print_summary(taken: CompileTime | None, console: Console) -> None:
    """Print one line, none if nothing is known or it was short."""
    from rich.text import Text

    if taken is None or taken.total_us < _SHORT_US:
        return
    named = ", ".join(f"{each.name} {_share(each.own_us, taken)}" for each in taken.passes[:_NAMED])
    words = shorten(f"{_total(taken)}: {named}", console.width - len(_TITLE) - 4)
    console.print(Text.assemble((f"\n  {_TITLE}", "bold"), f"  {words}"), no_wrap=True)


def print_compile_time(taken: CompileTime | None, console: Console, *, top: int | None) -> None:
    """Print the passes that take longest; ``top`` limits the list (None: no limit)."""
    from rich.text import Text

    if taken is None:
        return
    console.print(Text.assemble((f"\n  {_TITLE}", "bold"), f"  {_total(taken)}{_dump(taken)}"))
    for each in taken.passes[:top]:
        time = f"{duration(each.own_us):>8}"
        line = f"  {_share(each.own_us, taken):>4}  {time}  {safe(each.name)}  {_runs(each)}"
        console.print(Text(shorten(line, console.width)), no_wrap=True)
    print_hidden(console, 2, len(taken.passes), top, "pass")


def to_markdown(taken: CompileTime | None, top: int | None) -> Iterator[str]:
    if taken is None:
        return
    yield f"{_TITLE}: {_total(taken)}{_dump(taken)}.\n"
    yield "| pass | share | time | runs | changed the module |\n|---|--:|--:|--:|--:|"
    for each in taken.passes[:top]:
        share = _share(each.own_us, taken)
        yield (
            f"| {code(each.name)} | {share} | {duration(each.own_us)} "
            f"| {each.runs:,} | {each.changes:,} |"
        )
    yield ""


def _total(taken: CompileTime) -> str:
    runs = sum(each.runs for each in taken.passes)
    return f"{duration(taken.total_us)} in {plural(runs, 'pass')}"


def _dump(taken: CompileTime) -> str:
    return f", {_share(taken.dump_us, taken)} of it spent on writing the dump"


def _runs(each: PassCost) -> str:
    changed = f"{each.changes:,} changed the module" if each.changes else "none changed the module"
    if each.runs == 1:
        return "changed the module" if each.changes else "changed nothing"
    return f"{each.runs:,} runs, {changed}"


def _share(microseconds: int, taken: CompileTime) -> str:
    return f"{microseconds / taken.total_us:.0%}" if taken.total_us else "-"
