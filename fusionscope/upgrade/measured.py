"""The time of a program on the CPU of this machine: with one release, or several in turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fusionscope.capture.answering import AnsweringChild
from fusionscope.capture.capture import environment_without_dump, request_for
from fusionscope.upgrade.figures import Figure, Side, Verdict, judge
from fusionscope.upgrade.trial import Trial

_CHILD = Path(__file__).parents[1] / "capture" / "timing_child.py"
_ROUNDS = 9


def measure(trial: Trial, sides: Sequence[Side], flags: Sequence[str] = ()) -> list[Side]:
    """Run the program as the releases of ``sides`` compile it with ``flags``, in turns. Return
    ``sides`` with the time of each round, without that of the call from Python, or why the program
    does not run.
    """
    environment = environment_without_dump(trial.target, [*trial.flags, *flags])
    request = request_for(trial.program, trial.target)
    with ExitStack() as stack:
        children = [
            stack.enter_context(closing(AnsweringChild([side.python, str(_CHILD)], environment)))
            for side in sides
        ]
        rounds: list[list[dict[str, Any]]] = []
        for _ in range(1 + _ROUNDS):  # the first request is to compile
            rounds.append([child.exchange(request, trial.limit_s) for child in children])
            if any("problem" in reply for reply in rounds[-1]):
                break
    return [_measured(side, replies) for side, *replies in zip(sides, *rounds, strict=True)]


def measure_twice(trial: Trial, sides: tuple[Side, Side]) -> tuple[Side, Side]:
    """Run the program as two releases compile it; if the times seem to differ, in new processes,
    too. The rounds of both count.
    """
    before, after = measure(trial, sides)
    if judge(Figure.MEASURED_TIME, before, after) is Verdict.SAME:
        return before, after
    again = measure(trial, sides)
    before, after = (
        replace(side, runs_us=(*side.runs_us, *more.runs_us))
        for side, more in zip((before, after), again, strict=True)
    )
    return before, after


def _measured(side: Side, replies: Sequence[dict[str, Any]]) -> Side:
    problem = next((reply["problem"] for reply in replies if "problem" in reply), "")
    if problem:
        return replace(side, run_problem=problem, failures=1)
    runs_us = (max(reply["shortest_s"] - reply["call_s"], 0.0) * 1e6 for reply in replies[1:])
    return replace(side, runs_us=tuple(runs_us))
