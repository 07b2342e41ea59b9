"""The fusion passes of jaxlib 0.12 for GPUs, and its model of a GPU."""

from __future__ import annotations

from fusionscope.dump.fusion_passes import Record
from fusionscope.gpu.cost.analysis import CostAnalysis
from fusionscope.gpu.cost.launch import launch_of, reads_max_unroll
from fusionscope.gpu.cost.memory import combine, compute_time
from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters, find_hero
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.transposes import tiled_transpose
from fusionscope.gpu.triton_support import TritonVersion
from fusionscope.passes.fusion_pass import passes_of
from fusionscope.passes.gpu.block_level.rules import GPU_BLOCK_LEVEL
from fusionscope.passes.gpu.copy_fusion.rules import GPU_COPY_FUSION
from fusionscope.passes.gpu.fusion_wrapper.rules import GPU_WRAPPER
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
from fusionscope.passes.gpu.multi_output_fusion.rules import GPU_MULTI_OUTPUT
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.softmax_fusion.rules import GPU_SOFTMAX
from fusionscope.passes.gpu.sort_iota_fusion.rules import GPU_SORTING
from fusionscope.passes.gpu.variadic_op_splitter.rules import GPU_SPLITTER
from fusionscope.versions.compiler import Compiler

TRITON_0_12 = TritonVersion(
    has_unsigned=True,
    divides_halves=True,
    has_pads=False,
    has_concatenates=True,
    aligns_concatenates=True,
    many_operands="Reduction is not a reduction of a single operand.",
    many_dimensions=None,
    propagates_tiles=True,
    limits_transposes=True,
    counts_copies=False,
    counts_padding=True,
    names_opcodes=True,
    compute_time=compute_time,
)
GPU_0_12 = GpuModel(
    emitters=Emitters(
        tiled_transpose=tiled_transpose,
        hero_search=find_hero,
        tiles_copies=False,
        tells_sizes_apart=True,
        loops_below_a_byte=False,
        has_slices=False,
        looks_above_roots=True,
        looks_at_producers=True,
        column_elements=32 * (4 * 32 + 1),
    ),
    formulas=CostFormulas(
        analysis=CostAnalysis,
        launch=launch_of,
        reads_max_unroll=reads_max_unroll,
        compute_time=compute_time,
        combine=combine,
        sees_through_bitcasts=True,
        rounds_products=False,
    ),
    triton=TRITON_0_12,
    max_unroll=32,
)

# Source: xla/service/gpu/gpu_compiler.cc, fusion_pipeline.cc, fusion_dispatch_pipeline.cc,
# pre_scheduling_copy_insertion_pipeline.cc.
_PIPELINES: dict[str, tuple[str, ...]] = {
    "hlo_normalization": (
        "algsimp", "bitcast_dtypes_expander", "transpose-folding", "reshape-decomposer",
        "reduce-decomposer", "algorithm-checker", "dot_normalizer", "dot_dimension_sorter",
        "gemv-rewriter", "splitk-rewriter", "triton-gemm-rewriter", "hoist-fused-bitcasts",
        "gemm-fusion-swap-operands", "cublas-pad-for-gemms", "cublas-gemm-rewriter",
        "cublas-gemm-broadcast-folding-rewriter", "reshape-decomposer", "layout_normalization",
        "algsimp", "scatter_simplifier", "broadcast_canonicalizer",
        "reduction-degenerate-dim-remover", "reduction-layout-normalizer", "algsimp", "cse",
        "constant_folding", "dce", "triton-softmax-rewriter", "reduction-dimension-grouper",
        "reduction-splitter", "tree-reduction-rewriter", "sub-byte-size-setter",
    ),
    "fusion": (
        "variadic-op-splitter", "sort-iota-fusion", "priority-fusion", "cse", "dce",
        "multi_output_fusion", "cse", "dce",
    ),
    "autotuner": ("fusion-wrapper", "autotuner", "convert_triton_gemm_config"),
    "pre-scheduling-copy-insertion": (
        "dce", "loop-schedule-linearizer", "copy-insertion", "constant-fill-copy-rewriter",
        "copy_fusion", "sanitize-constant-names",
    ),
    "pre-scheduling-passes": (
        "fusion-wrapper", "dynamic-slice-copy-fusion-async-wrapper", "gpu-copy-async-wrapper",
    ),
    "fusion-wrapper": ("fusion-wrapper",),
    "fusion-dispatch-pipeline": ("dce", "fusion-block-level-rewriter"),
}  # fmt: skip

COMPILER = Compiler(
    name="gpu-0.12",
    release="0.12.0.1",
    passes=passes_of(
        (
            GPU_GEMM_V2, GPU_SOFTMAX, GPU_SPLITTER, GPU_SORTING, GPU_FUSION, GPU_MULTI_OUTPUT,
            GPU_COPY_FUSION, GPU_WRAPPER, GPU_BLOCK_LEVEL,
        )
    ),
    pipelines=_PIPELINES,
    gpu=GPU_0_12,
    compared_records=frozenset({Record.MULTI_OUTPUT_FUSION}),
)  # fmt: skip
