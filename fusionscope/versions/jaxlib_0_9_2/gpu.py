"""The fusion passes of jaxlib 0.9.2 for GPUs: Triton divides no f16 or bf16, and rounds nothing."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.versions.jaxlib_0_10_0 import gpu as newer
from fusionscope.versions.jaxlib_0_10_0.gpu import GPU_0_10_0

GPU_0_9_2 = replace(
    GPU_0_10_0,
    triton=replace(GPU_0_10_0.triton, divides_halves=False, rounds=False),
    formulas=replace(GPU_0_10_0.formulas, keeps_emissions=True),
)

_NORMALIZATION = tuple(
    name
    for name in newer.COMPILER.pipelines["hlo_normalization"]
    if name not in ("hoist-fused-bitcasts", "gemm-fusion-swap-operands")
)
_AFTER_GEMM = _NORMALIZATION.index("triton-gemm-rewriter") + 1
_PIPELINES = {
    **newer.COMPILER.pipelines,
    "hlo_normalization": (
        *_NORMALIZATION[:_AFTER_GEMM],
        "gemm-fusion-swap-operands",
        "hoist-fused-bitcasts",
        "dot-algorithm-rewriter",
        *_NORMALIZATION[_AFTER_GEMM:],
    ),
}

COMPILER = replace(
    newer.COMPILER, name="gpu-0.9.2", release="0.9.2", pipelines=_PIPELINES, gpu=GPU_0_9_2
)
