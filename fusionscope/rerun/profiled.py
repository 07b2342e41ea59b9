"""Measured times of the kernels of two programs, one of which a plan made."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import PROFILE
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.profile import read_profile
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.findings.measured.find import FoundRuns, find_runs
from fusionscope.history.kernels import Kernel, form_of, launches_of, without_equals
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.rerun import compile_again
from fusionscope.rerun.running import measure


class MeasuredKernel(Facts, frozen=True, kw_only=True):
    """A kernel of one of the two programs: its launches, bytes and microseconds in a run. The time
    is None if the trace does not show the kernel.

    name: the kernel in its final module
    launches: in a run
    bytes_moved: in a run
    time_us: the median of the runs; null if the profile does not show the kernel
    """

    name: str
    launches: int
    bytes_moved: int
    time_us: float | None


class MeasuredKernels(Facts, frozen=True, kw_only=True):
    """The microseconds of all kernels before and after, each in the median run, and the kernels
    that only one of the programs has, the longest first.

    before_us: microseconds of all kernels in a run of the baseline: the sum of the medians
    after_us: the same of the variant
    gone: the kernels that only the baseline has, the longest first
    made: the kernels that only the variant has, the longest first
    """

    before_us: float
    after_us: float
    gone: tuple[MeasuredKernel, ...]
    made: tuple[MeasuredKernel, ...]


def compare_profiles(
    before: DumpedModule, after: DumpedModule, profiles: tuple[Path, Path]
) -> MeasuredKernels:
    """Return what profiles of two programs show. Raises ``UnusableInput`` for one without runs."""
    sides = [
        _Side(module, find_runs(module, read_profile(profile)))
        for module, profile in zip((before, after), profiles, strict=True)
    ]
    return MeasuredKernels(
        before_us=fsum(sides[0].times.values()),
        after_us=fsum(sides[1].times.values()),
        gone=sides[0].without(sides[1]),
        made=sides[1].without(sides[0]),
    )


def profile_plan(
    module: DumpedModule,
    baseline: Injection,
    injection: Injection,
    *,
    inputs: Path | None,
    seed: int,
    python: str,
    limit_s: float,
) -> MeasuredKernels:
    """Compile and run the program of ``module`` with two plans, and return what profiles show. They
    run as in ``measure``. Raises ``UnusableInput`` if one of them cannot be compiled, run or
    profiled.
    """
    with TemporaryDirectory() as scratch:
        own_profile, dump = Path(scratch) / PROFILE, Path(scratch) / "dump"
        captured = compile_again(module, injection, dump, python=python, limit_s=limit_s)
        if captured.problem:
            raise UnusableInput(f"{module.name}: cannot be compiled again: {captured.problem}")
        profiles = (own_profile, captured.directory / PROFILE)
        (measurement,) = measure(
            module,
            baseline,
            [injection],
            inputs=inputs,
            seed=seed,
            seconds=0.0,
            python=python,
            limit_s=limit_s,
            profiles=profiles,
        )
        if measurement.problem or measurement.not_profiled:
            raise UnusableInput(f"{module.name}: {measurement.problem or measurement.not_profiled}")
        (rerun_module,) = open_dump(captured.directory).modules
        return compare_profiles(module, rerun_module, profiles)


class _Side:
    """The kernels of one program, and their measured times."""

    def __init__(self, module: DumpedModule, runs: FoundRuns) -> None:
        final = module.read(module.last)
        self.kernels: Sequence[Kernel] = launches_of(final, module.backend)
        self.times = runs.times_of({kernel.name for kernel in self.kernels})

    def without(self, second: _Side) -> tuple[MeasuredKernel, ...]:
        remaining = [
            MeasuredKernel(
                name=kernel.name,
                launches=kernel.launches,
                bytes_moved=kernel.bytes_moved,
                time_us=self.times.get(kernel.name),
            )
            for kernel in without_equals(self.kernels, second.kernels, form_of)
        ]
        return tuple(
            sorted(remaining, key=lambda measured_kernel: -(measured_kernel.time_us or 0.0))
        )
