"""The fusion passes of jaxlib 0.11.0 for GPUs, and its model of a GPU."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.gemm_fusion.rules import GemmInputWorth
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1
from fusionscope.versions.jaxlib_0_11_2 import gpu as newer
from fusionscope.versions.jaxlib_0_11_2.gpu import GPU_0_11, TRITON_0_11


class AnySliceWorth(GemmInputWorth):
    __slots__ = ()

    def is_cheap(self, instruction: MutableInstruction) -> bool:
        return True


GPU_GEMM_V1_0_11_0 = GPU_GEMM_V1.renamed("gpu-gemm-v1-0.11.0").with_rule(AnySliceWorth())

_ROW = "Reduction is not a row-reduction of a single operand."
TRITON_0_11_0 = replace(
    TRITON_0_11,
    has_unsigned=False,
    many_operands=_ROW,
    many_dimensions=_ROW,
    limits_transposes=False,
)
GPU_0_11_0 = replace(GPU_0_11, triton=TRITON_0_11_0)

COMPILER = replace(newer.COMPILER, name="gpu-0.11.0", release="0.11.0", gpu=GPU_0_11_0).with_books(
    GPU_GEMM_V1_0_11_0
)
