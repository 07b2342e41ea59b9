"""The fusion passes of jaxlib 0.11 for GPUs, and its model of a GPU."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1
from fusionscope.versions.jaxlib_0_12 import gpu as newer
from fusionscope.versions.jaxlib_0_12.gpu import GPU_0_12, TRITON_0_12

TRITON_0_11 = replace(
    TRITON_0_12,
    has_pads=True,
    many_dimensions=(
        "Multi-dimension reductions are only supported when experimental tiling propagation is "
        "enabled."
    ),
    propagates_tiles=False,
    counts_copies=True,
)
GPU_0_11 = replace(
    GPU_0_12,
    triton=TRITON_0_11,
    formulas=replace(GPU_0_12.formulas, rounds_products=True),
)

COMPILER = replace(newer.COMPILER, name="gpu-0.11", release="0.11.2", gpu=GPU_0_11).with_books(
    GPU_GEMM_V1
)
