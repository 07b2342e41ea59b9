"""The run time of a producer and its consumers, as estimated early in 2023: without launch
dimensions.

Source: xla/service/gpu/gpu_performance_model.cc of February 2023, which equals that of January.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionscope.dump.device import Device
from fusionscope.gpu.cost.duration import Duration, from_seconds
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH, bandwidth_of, write_time
from fusionscope.gpu.cost.model import CostModel, Estimate, SharedReads
from fusionscope.gpu.cost.numbers import f32, to_int64
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import leaves


def estimate(
    model: CostModel,
    producer: MutableInstruction,
    consumers: Iterable[MutableInstruction],
    *,
    writes_producer: bool = False,
) -> Estimate:
    """Return the estimate. ``writes_producer`` says that the fused kernel also writes the
    producer's result.

    Source: EstimateRunTimes.
    """
    device, costs = model.device, model.costs.of(producer)
    flops, bytes_written = to_int64(costs.flops), costs.output_bytes
    elements = f32(sum(leaf.element_count for leaf in leaves(producer.shape)))
    write = write_time(device, to_int64(bytes_written))
    compute = _compute_time(device, flops, to_int64(elements))
    unfused = KERNEL_LAUNCH + max(compute, _read_time(model, producer, None) + write)
    fused: Duration = write if writes_producer else 0
    for consumer in consumers:
        shared = SharedReads(model.costs, producer, consumer)
        utilization = model.costs.of(consumer).utilization[consumer.operands.index(producer)]
        again = f32(bytes_written * utilization)
        unfused += KERNEL_LAUNCH
        unfused += _transfer(device, to_int64(min(bytes_written, again)), to_int64(again))
        inside = _compute_time(
            device, to_int64(f32(f32(flops) * utilization)), to_int64(elements * utilization)
        )
        fused += KERNEL_LAUNCH + max(inside, _read_time(model, producer, (shared, utilization)))
    return Estimate(unfused, fused)


def _compute_time(device: Device, flops: int, threads: int) -> Duration:
    active = f32(min(threads, device.core_count * device.fpus_per_core))
    speed = f32(f32(2e9 * f32(device.clock_rate_ghz)) * active)
    return from_seconds(f32(f32(flops) / speed)) if speed else 0


def _read_time(
    model: CostModel, producer: MutableInstruction, inside: tuple[SharedReads, float] | None
) -> Duration:
    """Return the time of the producer's reads, maybe in a consumer (ProducerInputAccessTime)."""
    costs = model.costs.of(producer)
    total: Duration = 0
    for slot in range(len(producer.operands)):
        accessed = to_int64(costs.operand_bytes[slot])
        utilization = costs.utilization[slot]
        net = to_int64(f32(f32(accessed) / utilization)) if utilization else 0
        share = 1.0
        if inside is not None:
            shared, used = inside
            share = f32(used - shared.common_utilization(slot))
        read = to_int64(f32(f32(accessed) * share))
        total += _transfer(model.device, min(net, accessed), read)
    return total


def _transfer(device: Device, net: int, total: int) -> Duration:
    """Source: ReadTime."""
    return from_seconds(f32(f32(total) / bandwidth_of(device, net)))
