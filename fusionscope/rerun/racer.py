"""Runs several programs in turns, in a process of its own.

    PYTHON racer.py REQUEST RESULT

``REQUEST`` is JSON that ``racing.py`` writes; times go as JSON to ``RESULT``. Like ``runner.py``,
whose functions it uses, it imports nothing of fusionscope.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any


def _load_runner() -> Any:
    spec = importlib.util.spec_from_file_location("runner", Path(__file__).parent / "runner.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = _load_runner()


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    told: dict[str, Any] = {"problem": "", "times": [], "compile_s": []}
    try:
        _run(request, told)
    except runner.child.Unusable as problem:
        told["problem"] = str(problem)
    except Exception as error:
        told["problem"] = f"{type(error).__name__}: {error}"
    Path(sys.argv[2]).write_text(json.dumps(told), encoding="utf-8")


def _run(request: dict[str, Any], told: dict[str, Any]) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)  # inputs keep their types
    (place,) = runner.child.find_devices(request["device"], 1)
    runner.prepare_library()
    executables = []
    for program in request["programs"]:
        inputs = runner.find_inputs(program["text"], None, 0)
        begin = time.perf_counter()
        executables.append(
            runner.make(program["text"], place, inputs, program, request["device"]["platform"])
        )
        told["compile_s"].append(time.perf_counter() - begin)
    for each in executables:
        each.run()
    told["times"] = runner.take_times(executables, request["seconds"])


if __name__ == "__main__":
    main()
