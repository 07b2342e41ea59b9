"""Runs a sketch, and the compiler's own code for its region, on a CPU, and compares the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusionscope.capture.capture import run_process, tell_problem
from fusionscope.errors import UnusableInput
from fusionscope.hlo import to_text
from fusionscope.rerun.running import ResultDifference, choose_inputs
from fusionscope.sketch.sketch import Sketch

_CHILD = Path(__file__).parents[1] / "rerun" / "sketch_child.py"
_CPU = {"name": "cpu", "platform": "cpu", "is_here": True, "description": None}


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
        "text": to_text(sketch.module),
        "code": code,
        "device": _CPU,
        "inputs": choose_inputs(sketch.module, None),
    }
    environment = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    reply, status, errors = run_process(python, _CHILD, request, environment, limit_s)
    if status != 0 or reply.get("problem"):
        raise UnusableInput(f"the sketch was not checked: {tell_problem(reply, errors, status)}")
    reference, kernel = (
        tuple(ResultDifference(**result) for result in reply[part])
        for part in ("reference", "kernel")
    )
    return Comparison(reference, kernel)
