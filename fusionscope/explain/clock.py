"""How long one kernel takes at least."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.explain.result import TimeSource
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import Kernel
from fusionscope.hlo import Module


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
