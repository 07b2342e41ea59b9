"""Runs one function again and again, in a process of its own.

    PYTHON timing_child.py

Reads one JSON request per line and answers each with a line. The first is that of ``child.py``,
whose functions it uses, and has the function compiled; each other one has it run, and beside it a
function that takes the same arguments and does nothing: the call from Python takes tens of
microseconds, and differs between releases. Like that file, it runs under any Python that has jax,
and imports nothing of fusionscope.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SHORTEST_S = 0.05  # of the runs for one answer
_CALLS = 20  # of the function that does nothing


def _load_child() -> Any:
    path = Path(__file__).with_name("child.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


child = _load_child()


def _open(request: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], dict[str, float]]]:
    """Compile the function, and run it once."""
    import jax

    program = request["program"]
    child.allow_64_bits(program)
    (place,) = child.find_devices(request["device"], 1)
    function, arguments = child._function(program)
    described = child._described(arguments, place, is_here=True)
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    compiled = jitted.lower(*described).compile()
    nothing = jax.jit(lambda *_: (), keep_unused=True).lower(*described).compile()

    def run(executable: Any, inputs: Any) -> float:
        begin = time.perf_counter()
        jax.block_until_ready(executable(*inputs))
        return time.perf_counter() - begin

    def run_fresh() -> float:
        return run(compiled, child.fresh(arguments))  # a run may use them up

    def answer(_: Any) -> dict[str, float]:
        times = [run_fresh()]
        while sum(times) < _SHORTEST_S:
            times.append(run_fresh())
        inputs = child.fresh(arguments)
        return {
            "shortest_s": min(times),
            "call_s": min(run(nothing, inputs) for _ in range(_CALLS)),
        }

    run_fresh()
    return {}, answer


if __name__ == "__main__":
    child.serve(_open)
