"""The times that speak against a fusion, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.rules.gpu.cost.duration import TICKS_PER_MICROSECOND, Duration
from fusionscope.rules.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.rules.gpu.cost.model import PairCost, RunTime

_NEAR = 0.05  # of the time as it is: a difference below this is a near tie


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One kernel by the compiler's estimate: microseconds, bytes, and how it is launched. ``total``
    is less than the sum of its parts, as computing and memory access overlap."""

    name: str
    total: float
    compute: float
    read: float
    write: float
    bytes_read: int
    bytes_written: int
    blocks: int
    threads: int


@dataclass(frozen=True, slots=True)
class CostFacts:
    """What a producer and all its ``consumers`` take unfused and fused, and one pair of them.

    Microseconds, those of all kernels with ``launch`` for each. ``benefit`` is what the compiler
    expected of the fusion: it may be older than the times.
    """

    consumers: int
    unfused: float
    fused: float
    benefit: float
    launch: float
    is_near_tie: bool
    kernels: tuple[KernelCost, ...]


def cost_facts(cost: PairCost, producer: str, consumer: str) -> CostFacts:
    """``producer`` and ``consumer`` are what to call the two."""
    return CostFacts(
        cost.consumers,
        _microseconds(cost.estimate.unfused),
        _microseconds(cost.estimate.fused),
        _microseconds(cost.benefit),
        _microseconds(KERNEL_LAUNCH),
        abs(cost.benefit) < _NEAR * cost.estimate.unfused,
        (
            _kernel(producer, cost.producer),
            _kernel(consumer, cost.consumer),
            _kernel("both in one", cost.together),
        ),
    )


def _kernel(name: str, time: RunTime) -> KernelCost:
    return KernelCost(
        name,
        _microseconds(time.total),
        _microseconds(time.compute),
        _microseconds(time.read),
        _microseconds(time.write),
        time.bytes_read,
        time.bytes_written,
        *time.launch,
    )


def _microseconds(duration: Duration) -> float:
    return duration / TICKS_PER_MICROSECOND
