"""Computes lower bounds of the time of one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.facts.result import TimeSource
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import Kernel, KernelKind
from fusionscope.hlo import Instruction


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of one launch in nanoseconds, including what it takes to launch it."""

    nanoseconds: float
    source: TimeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The constants of a floor: nanoseconds for a launch, bytes and flops per nanosecond, and flops
    per transcendental function.
    """

    launch: float
    bandwidth: float
    flops: float
    flops_per_transcendental: float


# Round figures, of the order that two cores of a server reach.
NOMINAL_CPU = Machine(launch=200.0, bandwidth=20.0, flops=100.0, flops_per_transcendental=50.0)


class Clock:
    """Floors for kernels."""

    def __init__(self, machine: Machine, source: TimeSource) -> None:
        self.machine = machine
        self.source = source

    def time(self, kernel: Kernel) -> KernelTime:
        return self.floor(kernel)

    def floor(self, kernel: Kernel) -> KernelTime:
        machine = self.machine
        launch = 0.0 if kernel.is_inside else machine.launch
        if kernel.kind is KernelKind.FUNCTION:
            return KernelTime(launch, self.source)
        work = count_work(kernel.instruction)
        flops = work.flops + machine.flops_per_transcendental * work.transcendentals
        moving = (kernel.bytes_read + kernel.bytes_written) / machine.bandwidth
        computing = flops / self.rate(kernel.instruction)
        return KernelTime(launch + max(moving, computing), self.source)

    def rate(self, instruction: Instruction) -> float:
        """Return the flops per nanosecond."""
        return self.machine.flops


def is_near_tie(difference: float, time: float) -> bool:
    """Return whether a difference of times is at most 5% of ``time``, in the same unit."""
    return abs(difference) <= 0.05 * time
