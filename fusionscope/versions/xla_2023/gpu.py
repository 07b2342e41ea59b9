"""The fusion passes of XLA of early 2023 for GPUs."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.dump.fusion_passes import Record, find_fusion_pass
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.passes.gpu.variadic_op_splitter.rules import GPU_SPLITTER
from fusionscope.versions.jaxlib_0_4_35 import gpu as newer
from fusionscope.versions.xla_2023.gpu_model import GPU_2023
from fusionscope.versions.xla_2023.instruction_fusion import InstructionFusionPass
from fusionscope.versions.xla_2023.rules import (
    FUSION_MERGER_2023,
    GPU_DUPLICATION_2023,
    GPU_FUSION_2023,
    HORIZONTAL_INPUT_2023,
    HORIZONTAL_LOOP_2023,
    MULTI_OUTPUT_2023,
)

# The passes of a pipeline repeat until none of them changes anything.
_PIPELINES: dict[str, tuple[str, ...]] = {
    "fusion": (
        "variadic-op-splitter", "fusion", "fusion-duplicating", "fusion_merger",
        "multi_output_fusion", "cse", "dce",
    ),
    "horizontal_fusion": (
        "gpu_horizontal_loop_fusion", "gpu_horizontal_input_fusion", "cse", "dce",
    ),
}  # fmt: skip

COMPILER = replace(
    newer.COMPILER,
    name="gpu-2023",
    release="2023",
    passes=(
        pass_of(GPU_SPLITTER),
        InstructionFusionPass(find_fusion_pass("fusion", "gpu"), GPU_FUSION_2023),
        InstructionFusionPass(find_fusion_pass("fusion-duplicating", "gpu"), GPU_DUPLICATION_2023),
        pass_of(FUSION_MERGER_2023),
        pass_of(MULTI_OUTPUT_2023),
        pass_of(HORIZONTAL_LOOP_2023),
        pass_of(HORIZONTAL_INPUT_2023),
    ),
    pipelines=_PIPELINES,
    gpu=GPU_2023,
    # Its record of multi-output fusion is about other pairs than those of the replay.
    compared_records=frozenset({Record.INSTRUCTION_FUSION, Record.FUSION_MERGER}),
)
