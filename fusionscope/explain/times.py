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
from dataclasses import dataclass

from fusionscope.dump import DumpedModule
from fusionscope.explain.result import TimeEstimate, TimeSource
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.versions.context import read_gpu


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Of one launch, in nanoseconds, with what it takes to launch it."""

    nanoseconds: float
    source: TimeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a floor is computed with: nanoseconds for a launch, bytes and flops per nanosecond, and
    how many flops a transcendental function takes."""

    launch: float
    bandwidth: float
    flops: float
    flops_per_transcendental: float


# Round figures, of the order that two cores of a server reach.
NOMINAL_CPU = Machine(launch=200.0, bandwidth=20.0, flops=100.0, flops_per_transcendental=50.0)


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


class Clock:
    """Floors for the kernels of one module."""

    def __init__(self, module: Module, machine: Machine, source: TimeSource) -> None:
        self.instructions = {each.name: each for each in MutableModule(module).walk()}
        self.machine = machine
        self.source = source

    def time(self, kernel: Kernel) -> KernelTime:
        return self.floor(kernel, self.instructions[kernel.name])

    def floor(self, kernel: Kernel, instruction: MutableInstruction) -> KernelTime:
        machine = self.machine
        work = count_work(instruction)
        flops = work.flops + machine.flops_per_transcendental * work.transcendentals
        moving = (kernel.bytes_read + kernel.bytes_written) / machine.bandwidth
        computing = flops / self.rate(instruction)
        return KernelTime(machine.launch + max(moving, computing), self.source)

    def rate(self, instruction: MutableInstruction) -> float:
        """Flops per nanosecond."""
        return self.machine.flops
