"""What jaxlib 0.4.35 does in its own way."""

from __future__ import annotations

from fusionscope.gpu.cost.analysis import CostAnalysis
from fusionscope.gpu.cost.llvm_launch import llvm_launch_of
from fusionscope.gpu.cost.memory import compute_time_of_whole_flops
from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters, find_hero
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.transposes import tiled_transpose_of_three
from fusionscope.versions.jaxlib_0_10 import TRITON_0_10

RELEASE = "0.4.35"
"""The one against whose dumps the rules were held."""

# Its emitters write LLVM IR themselves. There are newer ones too, which it turns off:
# xla_gpu_mlir_emitter_level is 0 in what it hands to the compiler. None of the passes that are
# known asks what Triton can do.
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
        compute_time=compute_time_of_whole_flops,
        combine=max,  # one hides the other
        sees_through_bitcasts=False,
        rounds_products=True,
    ),
    triton=TRITON_0_10,
    max_unroll=4,
)
