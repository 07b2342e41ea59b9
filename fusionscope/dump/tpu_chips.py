"""The speed of TPUs, which no dump has.

Bandwidths and peak rates are those of ``jax/_src/tpu_info.py`` (jax 0.12) and of the pages of each
generation at docs.cloud.google.com/tpu/docs, whichever is higher: bounds follow from them. Clocks
follow from the peak rate in bf16 and the multipliers (``num_mxus`` and ``mxu_column_size`` there):
the rate is 2 * clock * multipliers, in units of 128 * 128, 4 for each core, to v5p. A v6e and a
core of a tpu7x count with 4 units of 256 * 256: the compiler's cycles for a product of two
bf16[8192,8192] have 369,000 and 422,000 flops each, and the two units in that file make 262,144.
A v4 has 1,050 MHz in Jouppi et al. 2023, "TPU v4", table 4, and its peak rate gives 1,049.

The compiler's own figures agree: at these clocks, its cycles for ``x + 1`` of f32[8192,8192] are
1.24 to 1.41 times what the bytes take at the bandwidth (for a v4, of one core).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class TpuChip:
    """What one device of a program has: ``clock_ghz``, its HBM bandwidth in bytes per nanosecond
    and its peak rate in bf16 in flops per nanosecond.
    """

    clock_ghz: float
    bandwidth: float
    flops: float


# A device is a chip, of a tpu7x one of two halves. A v4 of which each core is a device
# (``chip_config_name: "default"``) has half of the peak rate, and can take all of the bandwidth.
CHIPS: Mapping[str, TpuChip] = MappingProxyType(
    {
        "v4": TpuChip(1.05, 1_230.0, 275_000.0),
        "v5e": TpuChip(1.5, 820.0, 197_000.0),
        "v5p": TpuChip(1.75, 2_765.0, 459_000.0),
        "v6e": TpuChip(1.75, 1_640.0, 920_000.0),
        "tpu7x": TpuChip(2.2, 3_700.0, 1_155_000.0),
    }
)
