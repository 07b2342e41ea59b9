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

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from fusionscope.dump import DumpedModule
from fusionscope.gpu.cost.duration import TICKS_PER_NANOSECOND
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.gpu.state import GpuState, is_priority_fusible
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import Kernel, KernelKind, find_kernels
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.versions.context import read_context


class TimeSource(StrEnum):
    MODEL = "model"  # the GPU compiler's own estimate
    FLOOR = "floor"  # a GPU needs at least as long
    NOMINAL = "nominal"  # on a nominal CPU


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Of one launch, in nanoseconds, with what it takes to launch it."""

    nanoseconds: float
    source: TimeSource


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Microseconds of all kernels in one run of a module, and how many of its launches have no
    more than a floor. A loop whose length the compiler does not know counts once."""

    microseconds: float
    floor_launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a floor is computed with: nanoseconds for a launch, bytes and flops per nanosecond, and
    how many flops a transcendental function takes."""

    launch: float
    bandwidth: float
    flops: float
    flops_per_transcendental: float


NOMINAL_CPU = Machine(launch=1_000.0, bandwidth=20.0, flops=100.0, flops_per_transcendental=20.0)


def estimate(
    module: Module, backend: str | None, gpu: GpuTarget | None = None
) -> TimeEstimate | None:
    """How long one run of ``module`` takes: any module of a ``backend``, final, replayed or edited.

    ``gpu`` is the device with the compiler's model of it (``versions.context.read_context(...)
    .gpu``). None where nothing is known of the device: a backend that is neither cpu nor gpu, or a
    GPU that nothing describes. Before and after a change are comparable, as long as both modules
    come from the same stage of the pipeline. Raises ``UnusableInput`` where ``module`` contradicts
    itself.
    """
    clock = clock_for(module, backend, gpu)
    if clock is None:
        return None
    kernels = find_kernels(Numbering().number(module), backend)
    return sum_up((kernel.runs, clock.time(kernel)) for kernel in kernels)


def estimate_final(module: DumpedModule) -> TimeEstimate | None:
    """Of the final module of a dump for a GPU; None for other backends, or where there is none.
    Raises ``UnusableInput``."""
    gpu = read_context(module).gpu if module.backend == "gpu" else None
    if gpu is None or module.final is None:
        return None
    return estimate(module.read(module.final), "gpu", gpu)


def sum_up(times: Iterable[tuple[int, KernelTime]]) -> TimeEstimate:
    """``times`` are those of kernels, each with the number of its runs."""
    total, floors = 0.0, 0
    for runs, time in times:
        total += runs * time.nanoseconds
        floors += runs * (time.source is TimeSource.FLOOR)
    return TimeEstimate(total / 1_000, floors)


def clock_for(module: Module, backend: str | None, gpu: GpuTarget | None) -> Clock | None:
    """What tells the times of the kernels of ``module``; None as in ``estimate``."""
    if backend == "gpu" and gpu is not None:
        return GpuClock(module, gpu)
    return Clock(module, NOMINAL_CPU, TimeSource.NOMINAL) if backend == "cpu" else None


class Clock:
    """Floors for the kernels of one module."""

    def __init__(self, module: Module, machine: Machine, source: TimeSource) -> None:
        self._instructions = {each.name: each for each in MutableModule(module).walk()}
        self._machine = machine
        self._source = source

    def time(self, kernel: Kernel) -> KernelTime:
        return self._floor(kernel, self._instructions[kernel.name])

    def _floor(self, kernel: Kernel, instruction: MutableInstruction) -> KernelTime:
        machine = self._machine
        work = count_work(instruction)
        flops = work.flops + machine.flops_per_transcendental * work.transcendentals
        moving = (kernel.bytes_read + kernel.bytes_written) / machine.bandwidth
        computing = flops / self._rate(instruction)
        return KernelTime(machine.launch + max(moving, computing), self._source)

    def _rate(self, instruction: MutableInstruction) -> float:
        """Flops per nanosecond."""
        return self._machine.flops


class GpuClock(Clock):
    """The compiler's estimates where it has them, else floors."""

    def __init__(self, module: Module, target: GpuTarget) -> None:
        device = target.device
        machine = Machine(
            launch=KERNEL_LAUNCH / TICKS_PER_NANOSECOND,
            bandwidth=device.memory_bandwidth / 1e9,
            flops=2 * device.core_count * device.fpus_per_core * device.clock_rate_ghz,
            flops_per_transcendental=1.0,
        )
        super().__init__(module, machine, TimeSource.FLOOR)
        self._model = GpuState(device, target.gpu_model).model
        # Of units for matrices, two flops for each multiply-add.
        self._matrix_rates = {
            unit.element_type: 2
            * device.core_count
            * unit.units_per_core
            * unit.ops_per_clock
            * unit.clock_rate_ghz
            for unit in device.matrix_units
        }

    def time(self, kernel: Kernel) -> KernelTime:
        instruction = self._instructions[kernel.name]
        if _is_modelled(kernel, instruction):
            ticks = KERNEL_LAUNCH + self._model.time(instruction).total
            if isfinite(ticks):
                return KernelTime(ticks / TICKS_PER_NANOSECOND, TimeSource.MODEL)
        return self._floor(kernel, instruction)

    def _rate(self, instruction: MutableInstruction) -> float:
        types = {operand.shape.element_type for operand in instruction.operands}
        return (
            max((self._matrix_rates.get(each, 0.0) for each in types), default=0.0)
            or self._machine.flops
        )


def _is_modelled(kernel: Kernel, instruction: MutableInstruction) -> bool:
    """Whether XLA emits the kernel, so that its model is for it."""
    if instruction.is_custom_fusion:
        return is_generic_triton(instruction)
    if kernel.kind is KernelKind.OPERATION:
        return is_priority_fusible(instruction)
    return kernel.kind in (KernelKind.FUSION, KernelKind.WRAPPED)
