"""Computes lower bounds of the time of one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from fusionscope.facts.limits import Limits
from fusionscope.facts.result import TimeSource
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import Kernel, KernelKind, instructions_in, operations_in
from fusionscope.hlo import Instruction


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of one launch in nanoseconds, including what it takes to launch it.

    ``launch`` is that part; ``read``, ``write`` and ``compute`` are what these take alone. Memory
    access and computing overlap.
    """

    nanoseconds: float
    source: TimeSource
    launch: float = 0.0
    read: float = 0.0
    write: float = 0.0
    compute: float = 0.0

    @property
    def memory(self) -> float:
        return self.read + self.write


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
            return KernelTime(launch, self.source, launch)
        work = count_work(kernel.instruction)
        flops = work.flops + machine.flops_per_transcendental * work.transcendentals
        read, write = (
            size / machine.bandwidth for size in (kernel.bytes_read, kernel.bytes_written)
        )
        compute = flops / self.rate(kernel.instruction)
        total = launch + max(read + write, compute)
        return KernelTime(total, self.source, launch, read, write, compute)

    def products(self, kernel: Kernel) -> float:
        """Return the nanoseconds in which the products and convolutions of one launch are computed
        at the peak rate.
        """
        flops = fsum(count_work(inner).flops for inner in products_of(kernel.instruction))
        return flops / self.rate(kernel.instruction) if flops else 0.0

    def rate(self, instruction: Instruction) -> float:
        """Return the flops per nanosecond."""
        return self.machine.flops


_PRODUCTS = frozenset({"convolution", "custom-call", "dot"})


def products_of(launch: Instruction) -> list[Instruction]:
    """Return the matrix products and convolutions that a launch computes."""
    operations = operations_in(launch)
    if _PRODUCTS.isdisjoint(operations):
        return []
    return [inner for inner in instructions_in(launch) if inner.opcode in _PRODUCTS]


def is_near_tie(difference: float, time: float) -> bool:
    """Return whether a difference of times is at most 5% of ``time``, in the same unit."""
    return abs(difference) <= 0.05 * time


def limits_of(kernel: Kernel, time: KernelTime | None) -> Limits | None:
    """Return the limits of all runs of a kernel; None unless a GPU or TPU is known."""
    if time is None or time.source is TimeSource.NOMINAL:
        return None
    runs = kernel.runs / 1_000
    launches, beyond = runs * time.launch, runs * (time.nanoseconds - time.launch)
    if kernel.kind is KernelKind.LIBRARY:
        return Limits(launches, library=beyond)
    if max(time.memory, time.compute) < (time.nanoseconds - time.launch) / 2:
        return Limits(launches, unexplained=beyond)
    if time.memory >= time.compute:
        return Limits(launches, memory=beyond)
    return Limits(launches, compute=beyond)
