"""How long kernels take, and which model says so.

On a GPU, the time of a kernel that XLA emits is the compiler's own estimate: that by which it
decides on fusions, with the time of a launch in it. About libraries, sorts and collectives its
model says nothing. For these there is a floor: a launch, and the longer of moving all bytes at the
device's memory bandwidth and of computing at its peak rate.

No dump describes its CPU, and the CPU compiler has no model of time. Times for CPUs are floors of
the same kind for a nominal machine (``NOMINAL_CPU``): they rank the kernels of a module, and are
far off as times.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.dump import DumpedModule
from fusionscope.explain.clock import NOMINAL_CPU, Clock, KernelTime
from fusionscope.explain.result import TimeEstimate, TimeSource
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.versions.context import read_gpu


def estimate(
    module: Module, backend: str | None, gpu: GpuTarget | None = None
) -> TimeEstimate | None:
    """How long one run of ``module`` takes: any module of a ``backend``, final, replayed or edited.

    ``gpu`` is the device with the compiler's model of it (``versions.context.read_gpu``). None
    where nothing is known of the device: a backend that is neither cpu nor gpu, or a GPU that
    nothing describes. Before and after a change are comparable if both modules come from the same
    stage of the pipeline. Raises ``UnusableInput`` where ``module`` contradicts itself.
    """
    clock = clock_for(module, backend, gpu)
    if clock is None:
        return None
    kernels = find_kernels(Numbering().number(module), backend)
    return sum_up(kernels, [clock.time(kernel) for kernel in kernels])


def estimate_final(module: DumpedModule) -> TimeEstimate | None:
    """Of the final module of a dump for a GPU; None for other backends, or where there is none.
    Raises ``UnusableInput``."""
    gpu = read_gpu(module)
    if gpu is None or module.final is None:
        return None
    return estimate(module.read(module.final), "gpu", gpu)


def sum_up(kernels: Sequence[Kernel], times: Sequence[KernelTime | None]) -> TimeEstimate | None:
    """Over all runs; None where the time of a kernel is not known."""
    total, floors = 0.0, 0
    for kernel, time in zip(kernels, times, strict=True):
        if time is None:
            return None
        total += kernel.runs * time.nanoseconds
        floors += kernel.runs * (time.source is TimeSource.FLOOR)
    return TimeEstimate(total / 1_000, floors)


def clock_for(module: Module, backend: str | None, gpu: GpuTarget | None) -> Clock | None:
    """What tells the times of the kernels of ``module``; None as in ``estimate``."""
    if backend == "gpu" and gpu is not None:
        from fusionscope.explain.gpu_times import GpuClock

        return GpuClock(module, gpu)
    return Clock(module, NOMINAL_CPU, TimeSource.NOMINAL) if backend == "cpu" else None
