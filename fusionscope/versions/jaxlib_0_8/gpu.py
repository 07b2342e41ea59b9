"""The fusion passes of jaxlib 0.8 for GPUs: as in 0.9.2, but none for sorts that read an iota, and
Triton has no remainders of integers.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.gpu.sort_iota_fusion.rules import GPU_SORTING
from fusionscope.versions.jaxlib_0_9_2 import gpu as newer
from fusionscope.versions.jaxlib_0_9_2.gpu import GPU_0_9_2

GPU_0_8 = replace(
    GPU_0_9_2,
    triton=replace(
        GPU_0_9_2.triton, has_integer_remainders=False, explains_types=False, checks_last=True
    ),
)

_NORMALIZATION = newer.COMPILER.pipelines["hlo_normalization"]
_GEMM = _NORMALIZATION.index("triton-gemm-rewriter")
_REDUCTIONS = _NORMALIZATION.index("reduction-degenerate-dim-remover")
_PIPELINES = {
    **newer.COMPILER.pipelines,
    "hlo_normalization": (
        *_NORMALIZATION[:_GEMM],
        "transpose-dimension-grouper",
        *_NORMALIZATION[_GEMM:_REDUCTIONS],
        "transpose-dimension-grouper",
        *_NORMALIZATION[_REDUCTIONS:],
    ),
    "fusion": tuple(
        name for name in newer.COMPILER.pipelines["fusion"] if name != GPU_SORTING.pass_name
    ),
}

COMPILER = replace(
    newer.COMPILER,
    name="gpu-0.8",
    release="0.8.3",
    pipelines=_PIPELINES,
    gpu=GPU_0_8,
).without(GPU_SORTING.pass_name)
