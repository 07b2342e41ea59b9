"""What jaxlib 0.12 does in its own way."""

from __future__ import annotations

from fusionscope.gpu.cost.analysis import CostAnalysis
from fusionscope.gpu.cost.launch import launch_of
from fusionscope.gpu.cost.memory import combine, compute_time
from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters, find_hero
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.transposes import tiled_transpose
from fusionscope.gpu.triton_support import TritonVersion

RELEASE = "0.12.0.1"
"""The one against whose dumps the rules were held."""

TRITON_0_12 = TritonVersion(
    has_unsigned=True,
    has_pads=False,
    aligns_concatenates=True,
    many_operands="Reduction is not a reduction of a single operand.",
    many_dimensions=None,
    propagates_tiles=True,
    limits_transposes=True,
    counts_copies=False,
    counts_padding=True,
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
        compute_time=compute_time,
        combine=combine,
        sees_through_bitcasts=True,
        rounds_products=False,
    ),
    triton=TRITON_0_12,
    max_unroll=32,
)
