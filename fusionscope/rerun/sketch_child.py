"""Compares a region that the compiler runs with a sketch of it, in a process of its own.

    PYTHON sketch_child.py REQUEST RESULT

``REQUEST`` is JSON: the ``text`` of the region, the ``code`` of the sketch, and the ``inputs`` that
``running.choose_inputs`` describes. Like ``runner.py``, whose functions it uses, it runs under any
Python that has jax, and imports nothing of fusionscope.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def _load_runner() -> Any:
    path = Path(__file__).with_name("runner.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


runner = _load_runner()


def main() -> None:
    runner.child.end_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    reply: dict[str, Any] = {"problem": ""}
    try:
        reply |= _compare(request)
    except Exception as error:
        reply["problem"] = f"{type(error).__name__}: {error}"
    Path(sys.argv[2]).write_text(json.dumps(reply), encoding="utf-8")


def _compare(request: dict[str, Any]) -> dict[str, Any]:
    import jax

    (place,) = runner.child.find_devices(request["device"], 1)
    jax.config.update("jax_enable_x64", True)  # inputs keep their types
    inputs = runner._find_inputs(request["text"], request["inputs"], 0)
    expected = runner.Executable(request["text"], place, inputs).run()
    namespace: dict[str, Any] = {"__name__": "sketch"}
    exec(compile(request["code"], "sketch.py", "exec"), namespace)  # what fusionscope has written
    kernel = jax.tree_util.Partial(namespace["one_kernel"], interpret=True)
    return {
        "reference": _differences(expected, namespace["reference"], inputs),
        "kernel": _differences(expected, kernel, inputs),
    }


def _differences(expected: list[Any], function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    import jax
    import numpy

    results = [numpy.asarray(array) for array in jax.jit(function)(*inputs)]
    return runner._compare_alike(expected, results)


if __name__ == "__main__":
    main()
