"""Times several programs against each other on the local device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusionscope.capture.capture import quoted_flags, run_process, tell_problem
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.hlo import to_text
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.programs import find_program, recorded_inputs
from fusionscope.rerun.running import (
    RUNNER,
    ResultDifference,
    choose_inputs,
    device_here,
    environment_for,
    profile_places,
    read_timings,
)


@dataclass(frozen=True, slots=True)
class Racer:
    """The program of ``module``, with an injected plan. ``profile`` is where a profile of further
    runs goes, None for none.
    """

    module: DumpedModule
    injection: Injection
    profile: Path | None = None


@dataclass(frozen=True, slots=True)
class Race:
    """The times of one program beside the first one: ns per run (the lower decile of ``runs``), the
    ratio to that one, the ratio that equal programs may have, and the compile time in seconds.

    run_ns: nanoseconds of a run, the lower decile
    ratio: of its time to that of the first step that ran, next to it
    noise: ratio that two equal programs may have
    compile_s: seconds of compiling it without a dump
    runs: how many runs there were
    verdict: ``faster``, ``slower``, ``no difference beyond noise`` or ``too few runs to compare``
    results: the results of the program, in their order
    not_profiled: why no profile was recorded; empty if one was
    """

    run_ns: float
    ratio: Ratio
    noise: Ratio
    compile_s: float
    runs: int
    verdict: Speed
    results: tuple[ResultDifference, ...] = ()
    not_profiled: str = ""


def race(racers: Sequence[Racer], *, seconds: float, python: str, limit_s: float) -> list[Race]:
    """Run the programs in turns, on random inputs, ``seconds`` for each at most. All must have the
    same backend.

    Raises ``UnusableInput`` if one of them cannot be run.
    """
    if not racers:
        return []
    module = racers[0].module
    request = {
        "device": device_here(module),
        "seconds": seconds * len(racers),
        "is_strict": False,
        "programs": [
            {
                "text": to_text(find_program(racer.module)),
                "put": to_text(racer.injection.module) if racer.injection.module else "",
                "flags": quoted_flags(racer.injection.flags),
                "inputs": _inputs_of(racer.module, module),
                **profile_places(racer.profile),
            }
            for racer in racers
        ],
    }
    reply, code, errors = run_process(python, RUNNER, request, environment_for(module), limit_s)
    if code != 0 or reply.get("problem"):
        raise UnusableInput(f"cannot be run: {tell_problem(reply, errors, code)}")
    return [
        Race(
            timing.variant_ns,
            timing.ratio,
            timing.noise,
            compile_s,
            timing.runs,
            timing.verdict,
            tuple(ResultDifference(**result) for result in results),
            reply["not_profiled"],
        )
        for timing, compile_s, results in zip(
            read_timings(reply), reply["compile_s"], reply["numbers"], strict=True
        )
    ]


def _inputs_of(module: DumpedModule, first: DumpedModule) -> dict[str, object]:
    """Return what to run a program on: the inputs of the first one, if it can take them."""
    shapes, expected = (
        [parameter.shape for parameter in find_program(program_of).entry.parameters]
        for program_of in (module, first)
    )
    source = first if shapes == expected else module
    return choose_inputs(find_program(source), recorded_inputs(source))
