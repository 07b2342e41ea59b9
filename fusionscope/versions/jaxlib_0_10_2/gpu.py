"""The fusion passes of jaxlib 0.10 for GPUs, and its model of a GPU: as in 0.11.0, but fewer slices
and concatenations follow into a product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.gemm_fusion.dimension_order import Following
from fusionscope.passes.gpu.gemm_fusion.rules import Candidate, GemmInputWorth, GemmState
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import (
    GPU_GEMM_V1,
    OrderedCandidate,
    OrderedDimensions,
)
from fusionscope.passes.rule import Decision
from fusionscope.versions.jaxlib_0_11_0 import gpu as newer
from fusionscope.versions.jaxlib_0_11_0.gpu import GPU_0_11_0, TRITON_0_11_0, AnySliceWorth

_FOLLOWING = Following(
    dead_ends=frozenset({"concatenate", "dynamic-slice"}),
    slices_in_memory=False,
    reshapes_slices=False,
    moves_parts=True,
)


class GivenSliceWorth(GemmInputWorth):
    """A slice follows only what is given, whatever else reads that."""

    __slots__ = ()

    def takes_part(self, slice_: MutableInstruction) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ShortSliceWorth(AnySliceWorth):
    """A slice follows a value that others read if the product sums at most so many ``elements``,
    since it keeps longer sums from being split.
    """

    elements: int = 1024

    def check(self, candidate: Candidate, state: GemmState) -> Decision | None:
        if isinstance(candidate, OrderedCandidate) and candidate.side.summed > self.elements:
            return GivenSliceWorth(self.tolerance).check(candidate, state)
        return AnySliceWorth.check(self, candidate, state)

    def takes_part(self, slice_: MutableInstruction) -> bool:
        return len(slice_.operands[0].users) > 1 and AnySliceWorth.takes_part(self, slice_)


GPU_GEMM_V1_0_10 = (
    GPU_GEMM_V1.renamed("gpu-gemm-v1-0.10")
    .with_rule(OrderedDimensions(_FOLLOWING))
    .with_rule(ShortSliceWorth())
)

TRITON_0_10 = replace(TRITON_0_11_0, aligns_concatenates=False, counts_padding=False)
GPU_0_10 = replace(GPU_0_11_0, triton=TRITON_0_10)

COMPILER = replace(newer.COMPILER, name="gpu-0.10", release="0.10.2", gpu=GPU_0_10).with_books(
    GPU_GEMM_V1_0_10
)
