"""The run time of a producer and its consumers, as the passes before priority fusion estimate it.

Both sides leave out terms that fusion does not change, such as the computation of the consumer
itself. Source: xla/service/gpu/model/gpu_performance_model.cc of October 2024.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionscope.gpu.cost.analysis import CostAnalysis
from fusionscope.gpu.cost.duration import Duration
from fusionscope.gpu.cost.memory import (
    KERNEL_LAUNCH,
    cached_read_time,
    compute_time_of_whole_flops,
)
from fusionscope.gpu.cost.model import CostModel, Estimate, RunTime, SharedReads
from fusionscope.gpu.cost.numbers import f32, round_to_int64, saturated, to_int64
from fusionscope.gpu.state import GpuState, is_fusion
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.indexing import EMITTED_ANEW


def excess_code(
    producer: MutableInstruction,
    consumer: MutableInstruction,
    state: GpuState,
    *,
    most_branches: int,
    limit: int,
) -> dict[str, int]:
    """Return the numbers that show that the two as one kernel are too much code, empty if they are
    not: the number of branches, or of emitted instructions. Values from before a branch are
    computed again inside it.

    Source: ProducerConsumerMergedTooLarge.
    """
    costs, repeated = state.model.costs, 1
    if is_fusion(consumer):
        parameter = consumer.fused.parameters[consumer.operands.index(producer)]
        repeated = int(costs.of_fusion(consumer).inside.emitted[parameter])
    branches = int(repeated * _branches(producer, costs) + _branches(consumer, costs))
    if branches > most_branches:
        return {"branches": branches, "limit": most_branches}
    size = state.model.merged_size(producer, consumer) << branches
    return {"instructions": size, "limit": limit} if size > limit else {}


def _branches(instruction: MutableInstruction, costs: CostAnalysis) -> int:
    """Source: IrBasicBlockSplitCount."""
    if not is_fusion(instruction):
        return instruction.opcode in EMITTED_ANEW
    emitted = costs.of_fusion(instruction).inside.emitted
    return sum(
        int(emitted[instruction_inside])
        for instruction_inside in instruction.fused.instructions
        if instruction_inside.opcode in EMITTED_ANEW
    )


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
    time = model.time(producer)
    unfused = KERNEL_LAUNCH + time.total
    fused: Duration = time.write if writes_producer else 0
    for consumer in consumers:
        shared = SharedReads(model.costs, producer, consumer)
        unfused += KERNEL_LAUNCH + _read_again(model, time, consumer, shared.used)
        fused += KERNEL_LAUNCH + _producer_inside(model, time, producer, consumer, shared)
    return Estimate(unfused, fused)


def _read_again(
    model: CostModel, time: RunTime, consumer: MutableInstruction, utilization: float
) -> Duration:
    """Return the time to read the producer's result. Source: EstimateUnfusedExecTime."""
    blocks = model.launch(model.emission(consumer)).blocks
    total = round_to_int64(f32(f32(time.bytes_written) * utilization))
    return cached_read_time(model.device, blocks, min(time.bytes_written, total), total)


def _producer_inside(
    model: CostModel,
    time: RunTime,
    producer: MutableInstruction,
    consumer: MutableInstruction,
    shared: SharedReads,
) -> Duration:
    """Return the time of the producer's work inside the consumer. Source: EstimateFusedExecTime."""
    launch = model.launch(model.emission(producer, consumer))
    flops = to_int64(f32(f32(time.flops) * shared.used))
    compute = compute_time_of_whole_flops(model.device, flops, launch.blocks, launch.threads)
    costs = model.costs.of(producer)
    read: Duration = 0
    for slot in range(len(producer.operands)):  # Source: ProducerInputAccessTime
        accessed = saturated(costs.operand_bytes[slot])
        net = round_to_int64(f32(f32(accessed) / max(costs.utilization[slot], 1.0)))
        more = f32(shared.used - shared.common_utilization(slot))
        total = to_int64(f32(f32(accessed) * more))
        read += cached_read_time(model.device, launch.blocks, net, total)
    return max(compute, read)
