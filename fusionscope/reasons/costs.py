"""The times that argue against a fusion, and their parts."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.facts.clock import is_near_tie
from fusionscope.facts.result import ConsumerCost, CostFacts, KernelCost
from fusionscope.gpu.cost.duration import TICKS_PER_MICROSECOND, Duration
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.gpu.cost.model import ConsumerShare, Estimate, PairCost, RunTime


def cost_facts(cost: PairCost, producer: str, consumer: str) -> CostFacts:
    """Return the cost comparison. ``producer`` and ``consumer`` are the names to show."""
    costs = cost.all
    worst = costs.costliest[0]
    return CostFacts(
        consumers=costs.count,
        unfused_us=_microseconds(costs.estimate.unfused),
        fused_us=_microseconds(costs.estimate.fused),
        benefit_us=_microseconds(cost.benefit),
        launch_us=_microseconds(KERNEL_LAUNCH),
        producer_us=_microseconds(costs.producer.total + KERNEL_LAUNCH),
        near_tie=is_near_tie(cost.benefit, costs.estimate.unfused),
        shares=tuple(_shares(cost, consumer)),
        kernels=(
            _kernel(producer, costs.producer),
            _kernel(consumer if worst == cost.share else worst.name, costs.consumer),
            _kernel("both in one", costs.together),
        ),
    )


def _shares(cost: PairCost, consumer: str) -> Iterator[ConsumerCost]:
    """Return the costliest consumers, that of the pair, and the others together."""
    costs, own_share = cost.all, cost.share
    unfused = costs.estimate.unfused - costs.producer.total - KERNEL_LAUNCH
    loss = costs.estimate.fused - unfused
    shares_told = dict.fromkeys((*costs.costliest, own_share))
    for share in shares_told:
        name = consumer if share == own_share else share.name
        yield _consumer_cost(name, 1, share.estimate, loss)
    count_left = costs.count - len(shares_told)
    if count_left > 0:
        remaining = Estimate(
            unfused - sum(share.estimate.unfused for share in shares_told),
            costs.estimate.fused - sum(share.estimate.fused for share in shares_told),
        )
        yield _consumer_cost(None, count_left, remaining, loss)


def _consumer_cost(
    name: str | None, count: int, estimate: Estimate, loss: Duration
) -> ConsumerCost:
    own_loss = ConsumerShare("", estimate).loss
    return ConsumerCost(
        name=name,
        consumers=count,
        unfused_us=_microseconds(estimate.unfused),
        fused_us=_microseconds(estimate.fused),
        share=own_loss / loss if loss > 0 else 0.0,
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
