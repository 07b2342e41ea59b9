"""The times of kernels, and the model behind each.

On a GPU, the time of a kernel that XLA emits is the compiler's own estimate, by which it decides on
fusions, including the time of a launch. Its model does not cover libraries, sorts and collectives.
They have a floor: a launch, and the longer of moving all bytes at the device's memory bandwidth and
of computing at its peak rate.

On a TPU, the time of a kernel is the compiler's own estimate, which it writes into the final
module. What has none, such as a copy, has a floor (``facts/tpu_times.py``).

No dump describes its CPU, and the CPU compiler has no model of time. Times for CPUs are floors of
the same kind for a nominal machine (``NOMINAL_CPU``): they rank the kernels of a module, and are
far off as times.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from fusionscope.dump import DumpedModule
from fusionscope.dump.tpu_target import TpuTarget
from fusionscope.facts.clock import NOMINAL_CPU, Clock, KernelTime
from fusionscope.facts.result import TimeEstimate, TimeSource
from fusionscope.facts.suggestions import Figures
from fusionscope.history.kernels import Kernel, launches_of
from fusionscope.history.loops import NOTHING_MORE, LoopFacts
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.versions.context import read_target


def estimate(
    module: Module, backend: str | None, target: GpuTarget | TpuTarget | None = None
) -> TimeEstimate | None:
    """Return the time of one run of ``module``, which may be final, replayed or edited.

    ``target`` is the device (``versions.context.read_target``). Returns None if nothing is known of
    it: another backend, or an unknown GPU or TPU. Of a TPU, only final modules have times. Times
    before and after a change are comparable if both modules come from the same stage of
    the pipeline. Raises ``UnusableInput`` if ``module`` contradicts itself.
    """
    clock = clock_for(module, backend, target)
    if clock is None:
        return None
    kernels = launches_of(module, backend)
    return sum_up(kernels, [clock.time(kernel) for kernel in kernels])


def count_figures(
    module: Module,
    backend: str | None,
    target: GpuTarget | TpuTarget | None,
    loops: LoopFacts = NOTHING_MORE,
) -> Figures:
    """Return the launches, bytes and time of one run of ``module``, as ``estimate`` does."""
    kernels = launches_of(module, backend, loops)
    clock = clock_for(module, backend, target)
    time = None
    if clock is not None:
        time = sum_up(kernels, [clock.time(kernel) for kernel in kernels])
    return figures_of(kernels, time)


def figures_of(kernels: Sequence[Kernel], time: TimeEstimate | None) -> Figures:
    """Return the launches and bytes of one run of ``kernels``, which takes ``time``."""
    return Figures(
        sum(kernel.launches for kernel in kernels),
        sum(kernel.bytes_moved for kernel in kernels),
        time.microseconds if time is not None else None,
    )


def estimate_final(module: DumpedModule) -> TimeEstimate | None:
    """Return the time of the final module of a dump for a GPU or TPU; None for other backends, or
    if there is no such module. Raises ``UnusableInput``.
    """
    target = read_target(module)
    if target is None or module.final is None:
        return None
    return estimate(module.read(module.final), module.backend, target)


def sum_up(kernels: Sequence[Kernel], times: Sequence[KernelTime | None]) -> TimeEstimate | None:
    """Return the time over all runs; None if the time of a kernel is unknown."""
    shares, floors = [], 0
    for kernel, time in zip(kernels, times, strict=True):
        if time is None:
            return None
        shares.append(kernel.runs * time.nanoseconds)
        floors += kernel.launches * (time.source is TimeSource.FLOOR)
    return TimeEstimate(fsum(shares) / 1_000, floors)


def clock_for(
    module: Module, backend: str | None, target: GpuTarget | TpuTarget | None
) -> Clock | None:
    """Return what gives the times of the kernels of ``module``; None as in ``estimate``."""
    if isinstance(target, GpuTarget) and backend == "gpu":
        from fusionscope.facts.gpu_times import GpuClock

        return GpuClock(module, target)
    if isinstance(target, TpuTarget) and backend == "tpu":
        from fusionscope.facts.tpu_times import tpu_clock

        return tpu_clock(module, target)
    return Clock(NOMINAL_CPU, TimeSource.NOMINAL) if backend == "cpu" else None
