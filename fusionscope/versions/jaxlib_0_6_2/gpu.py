"""The fusion passes of jaxlib 0.6.2 for GPUs: as in 0.7.2, kernels side by side are joined, a
matrix multiplication takes a power that others read too, and Triton emits no finished reduction.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.fusion_pass import passes_of
from fusionscope.passes.gpu.block_level.rules import GPU_BLOCK_LEVEL, BlockLevelTransposeWorth
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import OrderedPower
from fusionscope.passes.gpu.multi_output_fusion.rules import GPU_MULTI_OUTPUT, Heroes
from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import (
    HORIZONTAL_INPUT,
    HORIZONTAL_LOOP,
    BatchOfAnyLength,
    ColumnLayout,
    LaterInputCandidate,
    LaterLoopCandidate,
    SharedParameter,
)
from fusionscope.versions.jaxlib_0_7_2 import gpu as newer
from fusionscope.versions.jaxlib_0_7_2.gpu import GPU_GEMM_V1_0_7_2

HORIZONTAL_LOOP_0_6_2 = (
    HORIZONTAL_LOOP.renamed("legacy-horizontal-loop-0.6.2")
    .without(ColumnLayout.id)
    .without(SharedParameter.id)
    .with_rule(LaterLoopCandidate())
    .with_rule(BatchOfAnyLength())
)
HORIZONTAL_INPUT_0_6_2 = HORIZONTAL_INPUT.renamed("legacy-horizontal-input-0.6.2").with_rule(
    LaterInputCandidate()
)

GPU_GEMM_V1_0_6_2 = GPU_GEMM_V1_0_7_2.renamed("gpu-gemm-v1-0.6.2").without(OrderedPower.id)

GPU_BLOCK_LEVEL_0_6_2 = GPU_BLOCK_LEVEL.renamed("gpu-block-level-0.6.2").with_rule(
    BlockLevelTransposeWorth()
)

GPU_MULTI_OUTPUT_0_6_2 = GPU_MULTI_OUTPUT.renamed("gpu-multi-output-0.6.2").with_rule(
    Heroes(looped_transposes=1)
)

_PIPELINES: dict[str, tuple[str, ...]] = {
    **newer.COMPILER.pipelines,
    "horizontal_fusion": ("horizontal_loop_fusion", "horizontal_input_fusion", "cse", "dce"),
    "pre-scheduling-copy-insertion": (
        "dce", "loop-schedule-linearizer", "copy-insertion", "horizontal-loop-fusion-for-copy",
        "sanitize-constant-names",
    ),
    "horizontal-loop-fusion-for-copy": ("copy_fusion", "horizontal_loop_fusion", "dce"),
}  # fmt: skip

COMPILER = replace(
    newer.COMPILER,
    name="gpu-0.6.2",
    release="0.6.2",
    passes=newer.COMPILER.passes + passes_of((HORIZONTAL_LOOP_0_6_2, HORIZONTAL_INPUT_0_6_2)),
    pipelines=_PIPELINES,
).with_books(GPU_GEMM_V1_0_6_2, GPU_BLOCK_LEVEL_0_6_2, GPU_MULTI_OUTPUT_0_6_2)
