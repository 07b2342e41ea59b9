"""The fusion passes of jaxlib 0.10 for GPUs, and its model of a GPU."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.gemm_fusion.dimension_order import Following
from fusionscope.passes.gpu.gemm_fusion.rules import GemmInputWorth
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1, OrderedDimensions
from fusionscope.versions.jaxlib_0_11_2 import gpu as newer
from fusionscope.versions.jaxlib_0_11_2.gpu import GPU_0_11, TRITON_0_11

_FOLLOWING = Following(
    dead_ends=frozenset({"concatenate", "dynamic-slice"}),
    slices_in_memory=False,
    reshapes_slices=False,
    moves_parts=True,
)


class AnySliceWorth(GemmInputWorth):
    __slots__ = ()

    def is_cheap(self, instruction: MutableInstruction) -> bool:
        return True


GPU_GEMM_V1_0_10 = (
    GPU_GEMM_V1.renamed("gpu-gemm-v1-0.10")
    .with_rule(OrderedDimensions(_FOLLOWING))
    .with_rule(AnySliceWorth())
)

_ROW = "Reduction is not a row-reduction of a single operand."
TRITON_0_10 = replace(
    TRITON_0_11,
    has_unsigned=False,
    aligns_concatenates=False,
    many_operands=_ROW,
    many_dimensions=_ROW,
    limits_transposes=False,
    counts_padding=False,
)
GPU_0_10 = replace(GPU_0_11, triton=TRITON_0_10)

COMPILER = replace(newer.COMPILER, name="gpu-0.10", release="0.10.2", gpu=GPU_0_10).with_books(
    GPU_GEMM_V1_0_10
)
