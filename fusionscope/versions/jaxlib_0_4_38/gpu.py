"""The fusion passes of jaxlib 0.4.38 for GPUs: Triton gets no dot alone, diamonds are joined."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.gpu.cost.launch import launch_without_vectors_in_scatters
from fusionscope.passes.gpu.softmax_fusion.rules import GPU_SOFTMAX_CHAINS
from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import (
    HORIZONTAL_LOOP,
    BatchOfAnyLength,
    ColumnLayout,
    SharedOperand,
    UpdateCandidate,
)
from fusionscope.versions.jaxlib_0_4_38.gemm_fusion import GPU_GEMM_0_4_38
from fusionscope.versions.jaxlib_0_5_3 import gpu as newer
from fusionscope.versions.jaxlib_0_5_3.gpu import GPU_0_5_3

HORIZONTAL_LOOP_0_4_38 = (
    HORIZONTAL_LOOP.renamed("legacy-horizontal-loop-0.4.38")
    .without(ColumnLayout.id)
    .with_rule(UpdateCandidate())
    .with_rule(SharedOperand())
    .with_rule(BatchOfAnyLength())
)

_TRITON = GPU_0_5_3.triton
GPU_0_4_38 = replace(
    GPU_0_5_3,
    triton=replace(_TRITON, unsupported=_TRITON.unsupported | {"complex", "copy"}),
    formulas=replace(GPU_0_5_3.formulas, launch=launch_without_vectors_in_scatters),
)

_PIPELINES: dict[str, tuple[str, ...]] = {
    **newer.COMPILER.pipelines,
    "hlo_normalization": (
        "algsimp", "transpose-folding", "reshape-decomposer", "reduce-decomposer",
        "algorithm-checker", "dot_normalizer", "gemv-rewriter", "triton-gemm-rewriter",
        "gemm-fusion-swap-operands", "simplify-int4-dots", "dot-algorithm-rewriter",
        "cublas-gemm-rewriter", "cublas-gemm-broadcast-folding-rewriter", "layout_normalization",
        "algsimp", "scatter_simplifier", "broadcast_canonicalizer", "transpose-dimension-grouper",
        "reduction-degenerate-dim-remover", "reduction-layout-normalizer", "float_normalization",
        "algsimp", "cse", "constant_folding", "dce", "triton-softmax-rewriter",
        "reduction-dimension-grouper", "reduction-splitter", "tree-reduction-rewriter",
        "sub-byte-size-setter",
    ),
    "GPU-ir-emit-prepare": (
        "dce", "loop-schedule-linearizer", "copy-insertion", "horizontal-loop-fusion-for-copy",
        "sanitize-constant-names",
    ),
    "fusion-dispatch-pipeline": ("fusion-block-level-rewriter",),
}  # fmt: skip

COMPILER = replace(
    newer.COMPILER, name="gpu-0.4.38", release="0.4.38", pipelines=_PIPELINES, gpu=GPU_0_4_38
).with_books(GPU_GEMM_0_4_38, GPU_SOFTMAX_CHAINS, HORIZONTAL_LOOP_0_4_38)
