"""The times that speak against a fusion, and what they are made of."""

from __future__ import annotations

from fusionscope.explain.result import CostFacts, KernelCost
from fusionscope.gpu.cost.duration import TICKS_PER_MICROSECOND, Duration
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.gpu.cost.model import PairCost, RunTime

_NEAR = 0.05  # of the time as it is: a difference below this is a near tie


def cost_facts(cost: PairCost, producer: str, consumer: str) -> CostFacts:
    """``producer`` and ``consumer`` are what to call the two."""
    return CostFacts(
        consumers=cost.consumers,
        unfused_us=_microseconds(cost.estimate.unfused),
        fused_us=_microseconds(cost.estimate.fused),
        benefit_us=_microseconds(cost.benefit),
        launch_us=_microseconds(KERNEL_LAUNCH),
        near_tie=abs(cost.benefit) < _NEAR * cost.estimate.unfused,
        kernels=(
            _kernel(producer, cost.producer),
            _kernel(consumer, cost.consumer),
            _kernel("both in one", cost.together),
        ),
    )


def _kernel(name: str, time: RunTime) -> KernelCost:
    blocks, threads = time.launch
    return KernelCost(
        name=name,
        total_us=_microseconds(time.total),
        compute_us=_microseconds(time.compute),
        read_us=_microseconds(time.read),
        write_us=_microseconds(time.write),
        bytes_read=time.bytes_read,
        bytes_written=time.bytes_written,
        blocks=blocks,
        threads=threads,
    )


def _microseconds(duration: Duration) -> float:
    return duration / TICKS_PER_MICROSECOND
