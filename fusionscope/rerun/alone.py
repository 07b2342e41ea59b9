"""Times a program as the compiler makes it, and the bandwidth that bounds it."""

from __future__ import annotations

from fusionscope.capture.capture import run_process, tell_problem
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.findings.run.facts import Run
from fusionscope.hlo import to_text
from fusionscope.progress import Progress, silent
from fusionscope.rerun.programs import find_program, recorded_inputs
from fusionscope.rerun.running import (
    RUNNER,
    choose_inputs,
    device_here,
    environment_for,
    why_not_run,
)


def time_alone(
    module: DumpedModule,
    needed_bytes: float,
    *,
    seconds: float,
    python: str,
    limit_s: float,
    progress: Progress = silent,
) -> Run:
    """Run the program of ``module``, which must move ``needed_bytes``, for ``seconds``, on the
    inputs that were recorded with the dump, or random ones.

    The bandwidth of this machine is measured in the same process. Raises ``UnusableInput`` if the
    program cannot be run.
    """
    if why_not := why_not_run(module):
        raise UnusableInput(f"{module.name}: cannot be run: {why_not}")
    program = find_program(module)
    request = {
        "program": to_text(program),
        "device": device_here(module),
        "inputs": choose_inputs(program, recorded_inputs(module)),
        "moved": round(needed_bytes),
        "seconds": seconds,
        "is_strict": False,
    }
    reply, code, errors = run_process(
        python, RUNNER, request, environment_for(module), limit_s, progress=progress
    )
    if code != 0 or reply.get("problem"):
        problem = tell_problem(reply, errors, code)
        raise UnusableInput(f"{module.name}: cannot be run: {problem}")
    (times,) = reply["times"]
    bandwidth = reply["bandwidth"] / 1_000_000
    return Run(
        time_us=times["run_ns"] / 1_000,
        runs=times["runs"],
        at_best_us=needed_bytes / bandwidth,
        at_best_bytes=needed_bytes,
        bandwidth=bandwidth,
    )
