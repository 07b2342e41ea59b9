"""A process that keeps variants of one program ready to run, so that a search can try many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionscope.capture.answering import AnsweringChild
from fusionscope.capture.capture import quoted_flags
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.injection import Injection, Received
from fusionscope.rerun.measuring import Ratio, Times
from fusionscope.rerun.running import (
    ResultDifference,
    environment_for,
    program_request,
)

_CHILD = Path(__file__).with_name("workbench_child.py")
BASELINE = 0  # its number


@dataclass(frozen=True, slots=True)
class Variant:
    """What to compile: a program, None for the one of the dump, and what is injected into it."""

    injection: Injection
    program: Module | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A compiled variant under its ``number``. ``problem`` says why there is none; it is empty
    otherwise. ``compile_s`` is the time to compile it, in seconds. ``is_wrong`` is what the user's
    predicate says of its results, None without one.
    """

    number: int
    results: tuple[ResultDifference, ...] = ()
    compile_s: float = 0.0
    problem: str = ""
    is_wrong: bool | None = None


class Workbench:
    """Compiles and times variants of the program of ``module`` on the local device.

    If a variant ends the process, it starts again; variants made before are then compiled again.
    ``predicate`` is ``FILE:FUNCTION``, a function of the results that returns whether they are
    wrong, or empty. Use it as a context. Raises ``UnusableInput`` if the baseline cannot be run.
    """

    def __init__(
        self,
        module: DumpedModule,
        baseline: Injection,
        *,
        inputs: Path | None,
        seed: int,
        python: str,
        limit_s: float,
        predicate: str = "",
    ) -> None:
        self._module = module
        self._python, self._limit_s = python, limit_s
        self._opening = {
            **program_request(module, inputs, seed),
            "baseline": _asked(Variant(baseline)),
            "predicate": predicate,
            "expected": None,
        }
        self._made: dict[int, dict[str, Any]] = {}
        self._number = BASELINE
        self._child: AnsweringChild | None = None
        self._jaxlib = ""

    def __enter__(self) -> Workbench:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def receive(self, carrier: Module, flags: Sequence[str]) -> Received:
        """Compile ``carrier`` up to the compiler's hook."""
        request = {
            "do": "receive",
            "text": to_text(carrier),
            "flags": quoted_flags(flags),
        }
        reply = self._ask(request)
        if reply.get("problem"):
            return Received(None, self._jaxlib, reply["problem"])
        return Received(parse(reply["module"]), self._jaxlib)

    def make(self, variant: Variant, limit_s: float) -> Made:
        """Compile ``variant``, and run it once, in at most ``limit_s`` seconds."""
        self._number += 1
        number = self._number
        request = _asked(variant)
        reply = self._ask({"do": "make", "number": number, "asked": request}, limit_s)
        if not reply.get("problem"):
            self._made[number] = request
        return _read(number, reply)

    def repeat(self, number: int, limit_s: float) -> Made:
        """Run a variant, or the baseline, once more."""
        return _read(number, self._ask({"do": "repeat", "number": number}, limit_s))

    def expect(self, file: Path) -> None:
        """Compare results with those in ``file``, an .npz, from now on. Raises ``UnusableInput`` if
        they have other shapes or types.
        """
        self._opening["expected"] = str(file.resolve())
        reply = self._ask({"do": "expect", "file": self._opening["expected"]})
        if reply.get("problem"):
            raise UnusableInput(f"{self._module.name}: {_line(reply['problem'])}")

    def run(self, variant: Variant, file: Path) -> None:
        """Compile ``variant``, whose results may be others than those of the baseline, and write
        them to ``file``, an .npz. Raises ``UnusableInput``.
        """
        request = _asked(variant)
        reply = self._ask({"do": "run", "asked": request, "file": str(file.resolve())})
        if reply.get("problem"):
            raise UnusableInput(f"{self._module.name}: cannot be run: {_line(reply['problem'])}")

    def save_64_bits(self, file: Path) -> None:
        """Write the results of the program in 64 bits, rounded to their own types, to ``file``, an
        .npz. Raises ``UnusableInput`` if it cannot be computed so.
        """
        reply = self._ask({"do": "save_64_bits", "file": str(file.resolve())})
        if reply.get("problem"):
            raise UnusableInput(f"{self._module.name}: {_line(reply['problem'])}")

    def save_inputs(self, file: Path) -> None:
        """Write the inputs of all programs to ``file``, an .npz."""
        self._ask({"do": "save_inputs", "file": str(file.resolve())})

    def race(
        self, numbers: Sequence[int], seconds: float, *, drops_slower: bool = False
    ) -> list[Times]:
        """Time programs in turns for at most ``seconds``. The first number is the baseline."""
        reply = self._ask(
            {
                "do": "race",
                "numbers": list(numbers),
                "seconds": seconds,
                "drops_slower": drops_slower,
            }
        )
        if reply.get("problem"):
            raise UnusableInput(f"{self._module.name}: cannot be timed: {_line(reply['problem'])}")
        return [_times(times) for times in reply["times"]]

    def drop(self, numbers: Sequence[int]) -> None:
        """Free the memory of variants."""
        for number in numbers:
            self._made.pop(number, None)
        self._ask({"do": "drop", "numbers": list(numbers)})

    def _start(self) -> None:
        self._close()
        self._child = AnsweringChild([self._python, str(_CHILD)], environment_for(self._module))
        reply = self._exchange(self._opening)
        if reply.get("problem"):
            raise UnusableInput(f"{self._module.name}: cannot be run: {_line(reply['problem'])}")
        self._jaxlib = reply["jaxlib"]
        for number, request in list(self._made.items()):
            self._exchange({"do": "make", "number": number, "asked": request})

    def _ask(self, request: dict[str, Any], limit_s: float | None = None) -> dict[str, Any]:
        """Return the answer. If there is none, start again, and return the problem."""
        reply = self._exchange(request, limit_s)
        if reply.get("died"):
            self._start()
        return reply

    def _exchange(self, request: dict[str, Any], limit_s: float | None = None) -> dict[str, Any]:
        assert self._child is not None
        return self._child.exchange(request, limit_s or self._limit_s)

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def _asked(variant: Variant) -> dict[str, Any]:
    injection = variant.injection
    return {
        "text": to_text(variant.program) if variant.program is not None else "",
        "put": to_text(injection.module) if injection.module is not None else "",
        "flags": quoted_flags(injection.flags),
    }


def _read(number: int, reply: dict[str, Any]) -> Made:
    if reply.get("problem"):
        return Made(number, problem=_line(reply["problem"]))
    results = tuple(ResultDifference(**difference) for difference in reply["results"])
    if not results:
        return Made(number, problem="its results have other shapes or types")
    return Made(number, results, reply["compile_s"], is_wrong=reply["is_wrong"])


def _times(reply: dict[str, Any]) -> Times:
    return Times(
        run_ns=reply["run_ns"],
        quartiles=tuple(reply["quartiles"]),
        ratio=Ratio(**reply["ratio"]),
        noise=Ratio(**reply["noise"]),
        runs=reply["runs"],
    )


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
