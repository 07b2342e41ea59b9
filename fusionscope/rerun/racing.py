"""Times several programs beside each other on the device at hand."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fusionscope.capture.capture import run_process, tell_problem
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.hlo import to_text
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.programs import compile_options, find_program
from fusionscope.rerun.running import (
    RUNNER,
    Ratio,
    ResultDifference,
    device_here,
    environment_for,
    ratio_of,
)


@dataclass(frozen=True, slots=True)
class Racer:
    """The program of ``module``, with what is injected."""

    module: DumpedModule
    injection: Injection


@dataclass(frozen=True, slots=True)
class Race:
    """Of one program: nanoseconds of a run (the median of ``runs``), to those of the first, which
    ran beside it, and seconds that it took to compile. ``results`` are its results against those of
    the first, empty where it has others."""

    median_ns: float
    ratio: Ratio
    compile_s: float
    runs: int
    results: tuple[ResultDifference, ...] = ()


def race(racers: Sequence[Racer], *, seconds: float, python: str, limit_s: float) -> list[Race]:
    """Runs the programs in turns, on random inputs, ``seconds`` for each. All are of one backend.

    Raises ``UnusableInput`` where one of them cannot be run.
    """
    if not racers:
        return []
    module = racers[0].module
    request = {
        "device": device_here(module),
        "seconds": seconds * len(racers),
        "programs": [
            {
                "text": to_text(find_program(each.module)),
                "put": to_text(each.injection.module) if each.injection.module else "",
                "options": compile_options(each.injection.flags),
            }
            for each in racers
        ],
    }
    told, code, errors = run_process(python, RUNNER, request, environment_for(module), limit_s)
    if code != 0 or told.get("problem"):
        raise UnusableInput(f"cannot be run: {tell_problem(told, errors, code)}")
    first = told["times"][0]
    return [
        Race(
            statistics.median(times),
            ratio_of(times, first),
            compile_s,
            len(times),
            tuple(ResultDifference(**each) for each in results),
        )
        for times, compile_s, results in zip(
            told["times"], told["compile_s"], told["numbers"], strict=True
        )
    ]
