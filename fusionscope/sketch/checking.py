"""Runs a sketch, and the compiler's own code for its region, on a CPU, and compares the numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fusionscope.capture.capture import run_process, tell_problem
from fusionscope.errors import UnusableInput
from fusionscope.hlo import to_text
from fusionscope.rerun.running import CPU, RUNNER, ResultDifference, choose_inputs
from fusionscope.sketch.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of a sketch beside those of the compiler's code, on random inputs: of the
    function in JAX, and of the kernel in interpret mode.
    """

    reference: tuple[ResultDifference, ...]
    kernel: tuple[ResultDifference, ...]


def compare(sketch: Sketch, code: str, *, python: str, limit_s: float) -> Comparison:
    """Compare what ``code``, the file of ``sketch``, computes with its region. Raises
    ``UnusableInput`` if ``python`` has no jax, or one of the programs does not run.
    """
    request = {
        "program": to_text(sketch.module),
        "sketch": code,
        "device": CPU,
        "inputs": choose_inputs(sketch.module, None),
    }
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    reply, status, errors = run_process(python, RUNNER, request, environment, limit_s)
    if status != 0 or reply.get("problem"):
        raise UnusableInput(f"the sketch was not checked: {tell_problem(reply, errors, status)}")
    reference, kernel = (
        tuple(ResultDifference(**result) for result in reply[part])
        for part in ("reference", "one_kernel")
    )
    return Comparison(reference, kernel)
