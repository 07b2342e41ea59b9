"""What has moved where rules differ from a compiler, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.report.experiments import around_in_words
from fusionscope.words.text import duration, plural, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.experiments.drift import Drift, Moved
    from fusionscope.verify.thresholds import FittingThreshold


def print_drift(drift: Drift, console: Console) -> None:
    from rich.text import Text

    if not drift.matched:
        console.print(Text(f"{safe(drift.module)}: the rules {drift.rules} agree with every pair"))
        return
    words = (
        f"{safe(drift.module)}: the rules {drift.rules} differ on {plural(drift.matched, 'pair')}"
    )
    console.print(Text(f"{words}, asked of {safe(drift.compiler)}", "bold"))
    seconds = duration(drift.seconds * 1e6)
    console.print(Text(f"  {plural(drift.compiled, 'program')} in {seconds}", "dim"))
    for pair in drift.pairs:
        console.print()
        _print_pair(pair, console)


def _print_pair(pair: Moved, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    def show(words: str, style: str = "", indent: int = 2) -> None:
        console.print(Padding(Text(words, style), (0, 0, 0, indent)))

    console.print(Text(f"{safe(pair.producer)} -> {safe(pair.consumer)}", "bold"))
    show(f"{pair.outcome}, but {pair.replayed} by the rules {pair.book} of {pair.pass_name}")
    if not pair.around:
        show(safe(pair.problem), "yellow")
        return
    show(f"cut out: {around_in_words(pair.around)}", "dim")
    for threshold in pair.thresholds:
        show(_in_words(threshold, pair), "green")
    if not pair.thresholds:
        show(
            f"rules and compiler differ on {pair.differing} of {plural(pair.programs, 'program')}, "
            "and no change of one threshold makes them agree on all: another condition has changed",
            "yellow",
        )
        for agreement in pair.agreements:
            show(
                safe(f"agree with {agreement.what}: {agreement.before} -> {agreement.after}"),
                "dim",
                4,
            )


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
