"""The time that a GPU takes to read, write and compute, in the compiler's model.

Times are durations (``duration.py``), sizes are bytes. Figures that the compiler keeps as 32-bit
floats are 32-bit floats here. Source: xla/service/gpu/model/gpu_performance_model_base.cc; figures
that no device description holds are in xla/stream_executor/device_description.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from fusionscope.dump.device import Device, RocmCapability
from fusionscope.gpu.cost.duration import (
    INFINITE,
    TICKS_PER_MICROSECOND,
    Duration,
    from_nanoseconds,
    from_seconds,
    scaled,
)
from fusionscope.gpu.cost.numbers import f32

# Of a device, flops, blocks, and threads per block.
ComputeTime: TypeAlias = Callable[[Device, int, int, int], Duration]

KERNEL_LAUNCH: Final = TICKS_PER_MICROSECOND
_L2_SPEEDUP = 2.5
_L1_SPEEDUP = 8.0
_OVERLAP = 0.95  # share of the shorter of computing and memory access that the longer one hides


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """``l1_cache_size`` (per core) and ``transaction_size`` (from DRAM to L2) are in bytes.
    ``bytes_per_clock`` is the most that one block can move.
    """

    l1_cache_size: int
    transaction_size: int
    bytes_per_clock: int


_COMMON = MemoryFigures(2 * 1024, 64, 32)
_BY_ROCM_ARCHITECTURE = {
    "gfx908": MemoryFigures(16 * 1024, 64, 32),
    "gfx90a": MemoryFigures(16 * 1024, 64, 32),
    "gfx942": MemoryFigures(32 * 1024, 128, 16),
    "gfx950": MemoryFigures(32 * 1024, 128, 16),
}


def memory_figures(device: Device) -> MemoryFigures:
    """Return what the compiler assumes about the memory of a device."""
    if isinstance(device.capability, RocmCapability):
        return _BY_ROCM_ARCHITECTURE.get(str(device.capability), _COMMON)
    return _COMMON


def read_time(
    device: Device, blocks: int, net: int, total: int, utilization: float = 1.0
) -> Duration:
    """Return the time to read ``total`` bytes of a buffer, ``net`` of them from DRAM and the rest
    again.

    ``utilization`` is the usable share of the DRAM bandwidth. Source: ReadTimeWithDRAMHeuristic.
    """
    figures = memory_figures(device)
    from_dram = f32(device.memory_bandwidth * utilization)
    again = bandwidth_of(device, net)
    if net >= device.l2_cache_size:
        again = f32(again * utilization)
    limit = _bandwidth_limit(device, figures, blocks)
    first = min(net, total)
    return _transfer(first, min(from_dram, limit)) + _transfer(total - first, min(again, limit))


def cached_read_time(device: Device, blocks: int, net: int, total: int) -> Duration:
    """Return the time to read ``total`` bytes, ``net`` of them distinct. Source: ReadTime."""
    figures = memory_figures(device)
    limit = _bandwidth_limit(device, figures, blocks)
    return _transfer(total, min(bandwidth_of(device, net), limit))


def bandwidth_of(device: Device, net: int) -> float:
    """Return the bytes per second of the cache that ``net`` bytes fit into, or of DRAM."""
    figures = memory_figures(device)
    bandwidth = f32(device.memory_bandwidth)
    if net < device.l2_cache_size:
        bandwidth = f32(bandwidth * _L2_SPEEDUP)
        if net < figures.l1_cache_size * device.core_count:
            bandwidth = f32(bandwidth * _L1_SPEEDUP)
    return bandwidth


def _bandwidth_limit(device: Device, figures: MemoryFigures, blocks: int) -> float:
    """Return the bytes per second that so many blocks can move. Source: AdjustBandwidth."""
    per_block = f32(f32(f32(device.clock_rate_ghz) * 1e9) * figures.bytes_per_clock)
    return f32(f32(blocks) * per_block)


def _transfer(size: int, bandwidth: float) -> Duration:
    return from_seconds(f32(f32(size) / bandwidth)) if bandwidth else INFINITE


def write_time(device: Device, size: int) -> Duration:
    """Source: WriteTime."""
    return _transfer(size, f32(device.memory_bandwidth))


def flops_per_nanosecond(device: Device, blocks: int, threads_per_block: int) -> int:
    """Return the flops per ns of so many blocks. Source: CalculateEffectiveFlopsPerNs."""
    return int(f32(f32(device.clock_rate_ghz) * 2) * _units(device, blocks, threads_per_block))


def compute_time(device: Device, flops: int, blocks: int, threads_per_block: int) -> Duration:
    """Source: ComputeTime."""
    return _time_at(flops_per_nanosecond(device, blocks, threads_per_block), flops)


def compute_time_of_whole_flops(
    device: Device, flops: int, blocks: int, threads_per_block: int
) -> Duration:
    """Return the same if a unit computes a whole number of flops in a nanosecond. Source:
    ComputeTime of October 2024.
    """
    whole = int(f32(f32(device.clock_rate_ghz) * 2))
    return _time_at(whole * _units(device, blocks, threads_per_block), flops)


def _time_at(speed: int, flops: int) -> Duration:
    return from_nanoseconds(f32(f32(flops) / f32(speed))) if speed else INFINITE


def _units(device: Device, blocks: int, threads_per_block: int) -> int:
    """Return the number of units that compute at once."""
    return min(blocks, device.core_count) * min(threads_per_block, device.fpus_per_core)


def combine(compute: Duration, memory: Duration) -> Duration:
    """Return the time of computing and memory access together.

    Source: CombineComputeAndMemoryAccessTime, GpuPerformanceModelOptions.
    """
    if INFINITE in (compute, memory):
        return INFINITE
    return compute + memory - scaled(min(compute, memory), _OVERLAP)


def coalescing_utilization(device: Device, element_bits: int, *, coalesced: bool) -> float:
    """Return the share of the bandwidth that reads of such elements use: all, or one element per
    transaction. Source: GetCoalescingUtilizationRate.
    """
    if coalesced:
        return 1.0
    return -(-element_bits // 8) / memory_figures(device).transaction_size
