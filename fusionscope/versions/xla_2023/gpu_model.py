"""The GPU model of XLA of early 2023."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.versions.jaxlib_0_4_35.gpu import GPU_0_4_35
from fusionscope.versions.xla_2023.cost_analysis import CostAnalysis2023
from fusionscope.versions.xla_2023.emitters import find_hero, tiled_transpose

GPU_2023 = replace(
    GPU_0_4_35,
    emitters=replace(
        GPU_0_4_35.emitters,
        tiled_transpose=tiled_transpose,
        hero_search=find_hero,
        tiles_copies=True,
        looks_above_roots=False,
        looks_at_producers=False,
        column_elements=2 * 32 * (32 + 1),
    ),
    formulas=replace(GPU_0_4_35.formulas, analysis=CostAnalysis2023),
)
