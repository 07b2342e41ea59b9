"""Runs plans beside the compiler's own choice, and compares results and times."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import repeat
from pathlib import Path
from typing import Any

from fusionscope.capture.capture import quoted_flags, run_process, tell_problem
from fusionscope.dump import DumpedModule
from fusionscope.dump.profile import EXECUTED
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.graph.comparison import has_equal_kernels
from fusionscope.hlo import Module, parse, to_text
from fusionscope.progress import Progress, silent
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.inputs import find_domains
from fusionscope.rerun.measuring import FEWEST, Ratio, Speed, judge
from fusionscope.rerun.programs import (
    disable_flag,
    find_program,
    lacks_constants,
    own_flags,
    recorded_inputs,
)

RUNNER = Path(__file__).parent / "runner.py"
CPU = {"name": "cpu", "platform": "cpu", "is_here": True, "description": None}  # for a child
# Where only results count. LLVM takes minutes to vectorize some bodies of loops, such as those with
# the rounds of random numbers.
_PLAIN_CODE = "--xla_backend_optimization_level=0"
_DRIVER = Path("/proc/driver/nvidia")  # exists on machines with an NVIDIA GPU
# A call of a Python function, which lives in the process that compiled the program.
_CALLBACK = re.compile(r"xla_\w*python\w*_callback")
_HOST_TRANSFERS = frozenset({"infeed", "outfeed", "send", "recv"})
_WIDENED = re.compile(r"\b(f16|bf16|f32|c64)\[")
_NOT_WIDENED = frozenset(
    """bitcast-convert custom-call reduce-precision rng rng-bit-generator
    rng-get-and-update-state""".split()
)
_FUSING = ("fusion", "cpu_multi_output_fusion", "dot-library-rewriter")
_EPSILON_32 = 2.0**-23
# Limits for rounding: a multiple of the baseline's error, or of the smallest step.
_WORSE, _LEAST, _SUMMED = 4.0, 16.0, 1024.0


class CannotRun(UnusableInput):
    """A program that fails when it runs. ``reason`` says how, in one line."""

    def __init__(self, module: DumpedModule, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{module.name}: cannot be run: {reason}")


class Numbers(StrEnum):
    """How the results of a variant compare with those of the baseline."""

    EQUAL = "equal"  # bitwise
    ROUNDED = "rounded differently"  # as far from the reference as the baseline
    DIFFERENT = "different"


class ResultDifference(Facts, frozen=True, kw_only=True):
    """One result of a program compared with the baseline.

    It is None if only one of two elements is a number. The errors are the same against a run in 64
    bits, or None without one, or if both are equal.

    dtype: type of its elements
    elements: how many it has
    is_equal: whether it is the baseline's to the last bit
    difference: largest difference as a share of the largest magnitude; of integers the share of
        elements that differ; null if one is a number and the other is none
    epsilon: smallest step of the type from one on, null for integers
    baseline_error: the same difference between the baseline and a run in 64 bits, null if there is
        none, and for equal results
    variant_error: that of the variant
    verdict: ``equal``, ``rounded differently`` or ``different``
    """

    computed = ("verdict",)

    dtype: str
    elements: int
    is_equal: bool
    difference: float | None = None
    epsilon: float | None = None
    baseline_error: float | None = None
    variant_error: float | None = None

    @property
    def verdict(self) -> Numbers:
        if self.is_equal:
            return Numbers.EQUAL
        if self.difference is None or self.epsilon is None:
            return Numbers.DIFFERENT
        # Narrow types are accumulated in 32 bits. A million roundings shift the sum by about a
        # thousand steps.
        allowed = max(_LEAST * self.epsilon, _SUMMED * min(self.epsilon, _EPSILON_32))
        error = self.difference
        if self.baseline_error is not None and self.variant_error is not None:
            error, allowed = self.variant_error, max(allowed, _WORSE * self.baseline_error)
        return Numbers.ROUNDED if error <= allowed else Numbers.DIFFERENT


class Timing(Facts, frozen=True, kw_only=True):
    """The ns of one run of the baseline and of the variant: lower deciles and quartiles of many.

    baseline_ns: one run of the baseline, in nanoseconds: the lower decile
    variant_ns: one run of the variant
    baseline_quartiles: the lower and the upper quartile
    variant_quartiles: the lower and the upper quartile
    ratio: variant to baseline, run in turns
    noise: ratio that two equal programs may have, from the differences between several compilations
        of each
    runs: timed runs of the variant
    is_same_program: whether both were compiled to the same kernels; the verdict is then ``no
        difference beyond noise``
    verdict: ``faster``, ``slower``, ``no difference beyond noise`` or ``too few runs to compare``
    """

    computed = ("verdict",)

    baseline_ns: float
    variant_ns: float
    baseline_quartiles: tuple[float, float]
    variant_quartiles: tuple[float, float]
    ratio: Ratio
    noise: Ratio
    runs: int
    is_same_program: bool = False

    @property
    def verdict(self) -> Speed:
        return Speed.SAME if self.is_same_program else self.speed

    @property
    def speed(self) -> Speed:
        """The verdict on the times alone, whatever the kernels are."""
        return judge(self.ratio, self.noise) if self.runs >= FEWEST else Speed.UNCLEAR


class Measurement(Facts, frozen=True):
    """The results of one variant. ``not_profiled`` says why the requested profiles were not
    recorded.

    problem: why it did not run; empty if it did
    results: the results of the program, in their order
    timing: null if it was not timed
    on_cpu: whether it ran on a CPU in place of its device, as another program does
    numbers: the worst verdict on a result, null if it did not run
    """

    internal = ("not_profiled",)
    computed = ("numbers",)

    problem: str
    results: tuple[ResultDifference, ...] = ()
    timing: Timing | None = None
    not_profiled: str = ""
    on_cpu: bool = False

    @property
    def numbers(self) -> Numbers | None:
        """The worst of its results, or None if it did not run."""
        if self.problem:
            return None
        order = list(Numbers)
        ranks = [order.index(result.verdict) for result in self.results]
        return order[max(ranks, default=0)]


def is_here(module: DumpedModule) -> bool:
    """Return whether this machine has a device of the kind that ``module`` was compiled for, and
    programs are run on it: not on TPUs.
    """
    return module.backend == "cpu" or (module.backend == "gpu" and _DRIVER.exists())


def why_not_run(module: DumpedModule) -> str:
    """Return why the programs of ``module`` cannot run here, empty if they can."""
    if not is_here(module):
        return "the GPU is not present" if module.backend == "gpu" else "no program is run on TPUs"
    program = find_program(module)
    for instruction in program.walk():
        if instruction.opcode in _HOST_TRANSFERS:
            return f"{instruction.name} exchanges data with its host"
        if _CALLBACK.search(instruction.attributes.get("custom_call_target", "")):
            return f"{instruction.name} calls a Python function in the process of the program"
    if lacks_constants(program):
        return (
            "the dump leaves large constants out: it needs XLA's flag "
            "--xla_dump_large_constants=true, or fusionscope capture --record-inputs"
        )
    return ""


def measure(
    module: DumpedModule,
    baseline: Injection,
    injections: Sequence[Injection],
    *,
    inputs: Path | None = None,
    seed: int = 0,
    seconds: float,
    python: str,
    limit_s: float,
    is_strict: bool = False,
    profiles: Sequence[Path | None] = (),
    progress: Progress = silent,
    on_cpu: bool = False,
) -> list[Measurement]:
    """Run the program of ``module`` with ``baseline`` and with each of ``injections``, on the same
    inputs: those of ``inputs``, an .npz in the order of the parameters, else those that were
    recorded with the dump, or random ones. All are
    timed alternately, for at most ``seconds``; a verdict needs some runs, which may take longer
    unless the limit ``is_strict``. They run on a CPU in place of the device of ``module`` if
    ``on_cpu`` is set. A profile of further runs goes to each directory of
    ``profiles``, that of the baseline first. Raises ``CannotRun`` if the baseline fails, and
    ``UnusableInput`` if the inputs do not fit or there is no compiler.

    If a variant ends the process, its result says so, and the others run without it.
    """
    measurements: dict[int, Measurement] = {}
    remaining = {n: injection for n, injection in enumerate(injections) if not injection.problem}
    for number, injection in enumerate(injections):
        if injection.problem:
            measurements[number] = Measurement(injection.problem)
    while remaining:
        numbers = list(remaining)
        places = [profiles[number] for number in (0, *(n + 1 for n in numbers))] if profiles else []
        request = _request(module, [baseline, *remaining.values()], inputs, seed, places)
        request |= {"seconds": seconds, "is_strict": is_strict}
        environment = environment_for(module)
        if on_cpu:
            request["device"] = CPU
            environment |= {"XLA_FLAGS": _PLAIN_CODE, "JAX_PLATFORMS": "cpu"}
        reply, code, errors = run_process(
            python, RUNNER, request, environment, limit_s, progress=progress
        )
        step = reply.get("step", "")
        if "variant" in step and (code != 0 or reply.get("problem")):
            died = numbers[int(step.rpartition(" ")[2])]
            measurements[died] = Measurement(tell_problem(reply, errors, code))
            del remaining[died]
            continue
        if code != 0 or reply.get("problem"):
            problem = tell_problem(reply, errors, code)
            if reply.get("is_unusable"):
                raise UnusableInput(f"{module.name}: cannot be run: {problem}")
            raise CannotRun(module, problem)
        measurements |= dict(zip(numbers, _read(reply), strict=True))
        break
    return [measurements[number] for number in sorted(measurements)]


def _request(
    module: DumpedModule,
    injections: Sequence[Injection],
    inputs: Path | None,
    seed: int,
    profiles: Sequence[Path | None],
) -> dict[str, Any]:
    """Return what ``runner.py`` needs to know, except for how long."""
    return {
        **program_request(module, inputs, seed),
        "executables": [
            {
                "put": to_text(injection.module) if injection.module is not None else "",
                "text": to_text(injection.program) if injection.program is not None else "",
                "flags": quoted_flags(injection.flags),
                **profile_places(place),
            }
            for injection, place in zip(injections, profiles or repeat(None), strict=False)
        ],
    }


def program_request(module: DumpedModule, inputs: Path | None, seed: int) -> dict[str, Any]:
    """Return what the child processes need to know of the program, its device and its inputs."""
    program = find_program(module)
    return {
        "program": to_text(program),
        "device": device_here(module),
        "inputs": choose_inputs(program, inputs or recorded_inputs(module)),
        "seed": seed,
        "reference": widen(program),
        "reference_flags": wide_flags(module),
    }


def choose_inputs(program: Module, file: Path | None) -> dict[str, object]:
    """Return what to run ``program`` on, as the child processes receive it: an .npz, or what random
    arguments must be like.
    """
    return {
        "file": None if file is None else str(file.resolve()),
        "domains": [asdict(domain) for domain in find_domains(program)] if file is None else [],
    }


def profile_places(directory: Path | None) -> dict[str, str]:
    """Return where the child processes write a profile and what ran, empty for nowhere."""
    place = directory.resolve() if directory is not None else None
    return {
        "profile": str(place) if place is not None else "",
        "executed": str(place / EXECUTED) if place is not None else "",
    }


def device_here(module: DumpedModule) -> dict[str, object]:
    """Return the device of ``module``, as the child processes receive it."""
    if module.backend == "cpu":
        return dict(CPU)
    return {"name": "gpu", "platform": "cuda", "is_here": True, "description": None}


def environment_for(module: DumpedModule) -> dict[str, str]:
    """Return the environment in which to run programs of ``module``, with its flags."""
    return os.environ | {
        "XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), *own_flags(module)]).strip(),
        "JAX_PLATFORMS": "cpu" if module.backend == "cpu" else "",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }


def widen(program: Module) -> str | None:
    """Return the program with 64-bit floating point numbers, or None if there are none to widen."""
    if any(instruction.opcode in _NOT_WIDENED for instruction in program.walk()):
        return None
    wide = {"c64": "c128"}
    return _WIDENED.sub(
        lambda element_type: wide.get(element_type[1], "f64") + "[", to_text(program)
    )


def wide_flags(module: DumpedModule) -> list[str]:
    """Return the flags of the run in 64 bits. On a CPU it runs without fusion, and shares no
    fault of a kernel.
    """
    return quoted_flags(disable_flag(module, *(_FUSING if module.backend == "cpu" else ())))


def _read(reply: dict[str, Any]) -> list[Measurement]:
    """Return one measurement for each variant. Failed ones have no times."""
    timings = read_timings(reply)[1:]
    measurements = []
    for problem, results in zip(reply["problems"], reply["numbers"], strict=True):
        differences = tuple(ResultDifference(**result) for result in results)
        measurements.append(
            Measurement(problem)
            if problem
            else Measurement("", differences, timings.pop(0), reply["not_profiled"])
        )
    return measurements


def read_timings(reply: dict[str, Any]) -> list[Timing]:
    """Return the times that ``runner.py`` reports, the baseline's first."""
    first, executed = reply["times"][0], reply["executed"][0]
    return [
        Timing(
            baseline_ns=first["run_ns"],
            variant_ns=times["run_ns"],
            baseline_quartiles=tuple(first["quartiles"]),
            variant_quartiles=tuple(times["quartiles"]),
            ratio=Ratio(**times["ratio"]),
            noise=Ratio(**times["noise"]),
            runs=times["runs"],
            is_same_program=_have_equal_kernels(executed, text),
        )
        for times, text in zip(reply["times"], reply["executed"], strict=True)
    ]


def _have_equal_kernels(first: str, second: str) -> bool:
    """Compare the texts of two executed modules, which are empty if they are unknown."""
    if not (first and second):
        return False
    return first == second or has_equal_kernels(parse(first), parse(second))
