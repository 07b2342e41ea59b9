"""The generations of the GPU compiler's emitters that rules and the cost model know."""

from __future__ import annotations

from enum import Enum


class Emitters(Enum):
    """By the first jaxlib that has them, or the year.

    Up to 0.4 they write LLVM IR themselves: jaxlib 0.4.34 has newer ones too, and turns them off
    (``xla_gpu_mlir_emitter_level`` is 0 in what it hands to the compiler). Fewer transposes are
    tiled there, several slices of one array have an emitter, and grids are of other sizes. Early in
    2023, what ends in a fusion's root was looked for in other ways, and the cost model was simpler.
    """

    V2023 = "2023"
    V0_4 = "0.4.34"
    V0_10 = "0.10"

    @property
    def is_older(self) -> bool:
        """Whether from before priority fusion."""
        return self is not Emitters.V0_10
