"""Keeps compiled programs ready to run, in a process of its own.

    PYTHON workbench_child.py

Reads one JSON request per line and answers each with a line. The first describes the program.
Like ``runner.py``, whose functions it uses, it runs under any Python that has jax, and imports
nothing of fusionscope.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import asdict
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
child, measuring = runner.child, runner.measuring


def _open(request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    bench = Bench(request)

    def respond(request: dict[str, Any]) -> Any:
        return getattr(bench, request.pop("do"))(**request)

    return {"jaxlib": importlib.metadata.version("jaxlib")}, respond


class Bench:
    """One program, and variants of it. Each public method answers a request of that name."""

    def __init__(self, request: dict[str, Any]) -> None:
        child.require_some_hook()
        device = request["device"]
        self._platform = device["platform"]
        self._place = runner._prepare(device, [request["baseline"]])
        self._text = request["program"]
        self._inputs = runner._find_inputs(self._text, request["inputs"], request["seed"])
        baseline = self._compile(request["baseline"])
        self._expected = baseline.run()
        self._reference = runner._run_in_64_bits(
            request["reference"], self._place, self._inputs, request["reference_flags"]
        )
        self._programs = {0: baseline}
        self._predicate = _load_predicate(request["predicate"])
        if request["expected"]:
            self.expect(request["expected"])
        self._judge(self._expected)

    def _compile(self, request: dict[str, Any]) -> Any:
        text = request.get("text") or self._text
        return runner._make(text, self._place, self._inputs, request, self._platform)

    def receive(self, text: str, flags: list[str]) -> dict[str, Any]:
        """Compile up to the hook, and answer with the module that it receives."""
        printed = child.hook.bindings().HloPrintOptions()
        printed.print_large_constants = True
        modules: list[str] = []

        def transform(serialized: bytes) -> bytes:
            modules.append(child.hook.read_module(serialized).to_string(printed))
            raise _Enough

        try:
            with child.hook.hooked(transform, self._platform):
                runner.Executable(text, self._place, self._inputs, flags)
        except Exception:
            if not modules:
                raise
        return {"module": modules[0]}

    def make(self, number: int, asked: dict[str, Any]) -> dict[str, Any]:
        """Compile a program under ``number``, and compare its results with the baseline's."""
        executable = self._compile(asked)
        self._programs[number] = executable
        return self.repeat(number)

    def repeat(self, number: int) -> dict[str, Any]:
        """Run a program once more, and compare its results with those that are expected."""
        executable = self._programs[number]
        outputs = executable.run()
        results = runner._compare_alike(self._expected, outputs, self._reference)
        is_wrong = self._judge(outputs)
        return {"results": results, "compile_s": executable.compile_s, "is_wrong": is_wrong}

    def _judge(self, results: list[Any]) -> bool | None:
        """Return what the user's predicate says, None if there is none."""
        if self._predicate is None:
            return None
        try:
            return bool(self._predicate(results))
        except Exception as error:
            raise child.Unusable(f"the predicate failed: {child._words(error)}") from None

    def expect(self, file: str) -> dict[str, Any]:
        """Compare results with those in ``file`` from now on."""
        outputs = self._programs[0].run()
        expected = runner.load_arrays(file, [output.dtype for output in outputs])
        both = [
            ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
            for arrays in (outputs, expected)
        ]
        if both[0] != both[1]:
            raise child.Unusable(f"the reference has the results {both[1]}, expected {both[0]}")
        self._expected = expected
        return {}

    def run(self, asked: dict[str, Any], file: str) -> dict[str, Any]:
        """Compile a program, and write its results to ``file``."""
        return _save(self._compile(asked).run(), file)

    def save_64_bits(self, file: str) -> dict[str, Any]:
        """Write the results of the run in 64 bits to ``file``, rounded to their types."""
        if self._reference is None:
            raise child.Unusable("the program cannot be computed in 64 bits")
        outputs = self._programs[0].run()
        pairs = zip(self._reference, outputs, strict=True)
        return _save([wide.astype(output.dtype) for wide, output in pairs], file)

    def save_inputs(self, file: str) -> dict[str, Any]:
        return _save(self._inputs, file)

    def race(self, numbers: Sequence[int], seconds: float, drops_slower: bool) -> dict[str, Any]:
        """Time programs in turns, one copy of each; the first is the baseline."""
        programs = [[self._programs[number]] for number in numbers]
        with child.threads.threads_apart() as place_threads:
            times = measuring.time_in_turns(
                programs, seconds, place_threads, drops_slower=drops_slower
            )
        return {"times": [asdict(program_times) for program_times in times]}

    def drop(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Forget programs."""
        for number in numbers:
            self._programs.pop(number, None)
        return {}


def _save(arrays: Sequence[Any], file: str) -> dict[str, Any]:
    import numpy

    numpy.savez(file, *arrays)
    return {}


def _load_predicate(place: str) -> Any:
    """Return the function that ``FILE:FUNCTION`` names, None if it is empty."""
    if not place:
        return None
    file, _, name = place.rpartition(":")
    try:
        path = Path(file).resolve()
        sys.path.insert(0, str(path.parent))  # it may import what is beside it
        return getattr(child.load(path), name)
    except Exception as error:
        words = child._words(error)
        raise child.Unusable(f"{place}: the predicate cannot be loaded: {words}") from None


class _Enough(Exception):
    """Ends a compilation at the hook."""


if __name__ == "__main__":
    child.serve(_open)
