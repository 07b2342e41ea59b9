"""The generations of the GPU compiler's emitters that rules and the cost model know."""

from __future__ import annotations

from enum import Enum


class Emitters(Enum):
    """By the first jaxlib that has them.

    Up to 0.4 they write LLVM IR themselves: jaxlib 0.4.34 has newer ones too, and turns them off
    (``xla_gpu_mlir_emitter_level`` is 0 in what it hands to the compiler). Fewer transposes are
    tiled there, several slices of one array have an emitter, and grids are of other sizes.
    """

    V0_4 = "0.4.34"
    V0_10 = "0.10"
