"""The fusion passes of jaxlib 0.4.35 for GPUs, and its model of a GPU."""

from __future__ import annotations

from fusionscope.dump.fusion_passes import Record
from fusionscope.gpu.cost.analysis import CostAnalysis
from fusionscope.gpu.cost.llvm_launch import llvm_launch_of, reads_max_unroll
from fusionscope.gpu.cost.memory import compute_time_of_whole_flops
from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters, find_hero
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.transposes import tiled_transpose_of_three
from fusionscope.passes.fusion_pass import passes_of
from fusionscope.passes.gpu.variadic_op_splitter.rules import GPU_SPLITTER
from fusionscope.passes.gpu_legacy.fusion_merger.rules import FUSION_MERGER
from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import (
    HORIZONTAL_INPUT,
    HORIZONTAL_LOOP,
)
from fusionscope.passes.gpu_legacy.instruction_fusion.rules import (
    GPU_DUPLICATING_FUSION,
    GPU_INSTRUCTION_FUSION,
)
from fusionscope.passes.gpu_legacy.multi_output_fusion.rules import (
    MULTI_OUTPUT_BEFORE_PRIORITY_FUSION,
)
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.jaxlib_0_10_2.gpu import TRITON_0_10

# Its emitters write LLVM IR themselves. It also has newer ones, but disables them: it sets
# xla_gpu_mlir_emitter_level to 0 for the compiler. None of the known passes asks about Triton.
GPU_0_4_35 = GpuModel(
    emitters=Emitters(
        tiled_transpose=tiled_transpose_of_three,
        hero_search=find_hero,
        tiles_copies=False,
        tells_sizes_apart=False,
        loops_below_a_byte=True,
        has_slices=True,
        looks_above_roots=True,
        looks_at_producers=True,
        column_elements=32 * (4 * 32 + 1),
    ),
    formulas=CostFormulas(
        analysis=CostAnalysis,
        launch=llvm_launch_of,
        reads_max_unroll=reads_max_unroll,
        compute_time=compute_time_of_whole_flops,
        combine=max,  # one hides the other
        sees_through_bitcasts=False,
        rounds_products=True,
    ),
    triton=TRITON_0_10,
    max_unroll=4,
)

# With --xla_gpu_enable_priority_fusion=false. The two runs of instruction fusion are separate
# passes here; files use the same name for both.
_PIPELINES: dict[str, tuple[str, ...]] = {
    "fusion": (
        "variadic-op-splitter", "fusion", "fusion-duplicating", "fusion_merger", "cse", "dce",
        "multi_output_fusion", "cse", "dce",
    ),
    "horizontal_fusion": ("horizontal_loop_fusion", "horizontal_input_fusion", "cse", "dce"),
}  # fmt: skip

COMPILER = Compiler(
    name="gpu-0.4.35",
    release="0.4.35",
    passes=passes_of(
        (
            GPU_SPLITTER, GPU_INSTRUCTION_FUSION, GPU_DUPLICATING_FUSION, FUSION_MERGER,
            MULTI_OUTPUT_BEFORE_PRIORITY_FUSION, HORIZONTAL_LOOP, HORIZONTAL_INPUT,
        )
    ),
    pipelines=_PIPELINES,
    gpu=GPU_0_4_35,
    compared_records=frozenset(
        {Record.INSTRUCTION_FUSION, Record.FUSION_MERGER, Record.MULTI_OUTPUT_FUSION}
    ),
    unseen=frozenset({GPU_SPLITTER.pass_name}),  # no program has a concatenate of so many arrays
)  # fmt: skip
