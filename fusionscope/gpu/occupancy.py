"""How many threads of a kernel an NVIDIA GPU runs at once.

Source: the CUDA occupancy calculator, and cudaOccMaxActiveBlocksPerMultiprocessor in
``cuda_occupancy.h`` of the CUDA toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fusionscope.dump.device import CudaCapability, Device

_REGISTERS_UNIT = 256  # registers of a warp are allocated in such units
_SUB_CORES = 4  # warps are spread over these, each with its part of the registers
_UNLIMITED = 1 << 16


class Limit(StrEnum):
    """What keeps more blocks of a kernel from running on a core."""

    BLOCKS = "blocks"
    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    THREADS = "threads"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``blocks`` blocks run on a core at once, with ``share`` of the warps that it can hold."""

    blocks: int
    share: float
    limit: Limit


def occupancy(device: Device, registers: int, threads: int, shared_bytes: int) -> Occupancy | None:
    """Return the occupancy of a kernel with ``registers`` a thread, and with ``threads`` threads
    and ``shared_bytes`` of shared memory a block.

    Returns None for what is no NVIDIA GPU from Volta on, and if no block fits.
    """
    capability = device.capability
    if not isinstance(capability, CudaCapability) or capability.major < 7 or threads <= 0:
        return None
    most_warps = device.threads_per_core_limit // 32
    warps = -(-threads // 32)
    limits = {
        Limit.THREADS: most_warps // warps,
        Limit.REGISTERS: _by_registers(device, registers, warps),
        Limit.SHARED_MEMORY: _by_shared_memory(device, capability, shared_bytes),
        Limit.BLOCKS: _most_blocks(capability),
    }
    limit = min(limits, key=lambda resource: limits[resource])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * warps / most_warps, limit) if blocks else None


def _by_registers(device: Device, registers: int, warps: int) -> int:
    if not registers:
        return _UNLIMITED
    of_warp = _rounded_up(registers * 32, _REGISTERS_UNIT)
    # Each quarter of the core holds whole warps.
    fitting = device.registers_per_core_limit // _SUB_CORES // of_warp * _SUB_CORES
    of_block = of_warp * _rounded_up(warps, _SUB_CORES)
    return 0 if of_block > device.registers_per_block_limit else fitting // warps


def _by_shared_memory(device: Device, capability: CudaCapability, shared_bytes: int) -> int:
    reserved, unit = (1024, 128) if capability.major >= 8 else (0, 256)
    of_block = _rounded_up(shared_bytes + reserved, unit)
    return device.shared_memory_per_core // of_block if of_block else _UNLIMITED


def _most_blocks(capability: CudaCapability) -> int:
    version = capability.major, capability.minor
    if version in {(8, 9), (10, 1), (11, 0)} or capability.major == 12:
        return 24
    return 16 if version == (7, 5) or (capability.major == 8 and capability.minor) else 32


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
