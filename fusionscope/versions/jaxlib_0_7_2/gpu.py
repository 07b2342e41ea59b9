"""The fusion passes of jaxlib 0.7.2 for GPUs: as in 0.8, but a unit computes whole flops."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.gpu.cost.memory import compute_time_of_whole_flops
from fusionscope.versions.jaxlib_0_7_2.cost_analysis import CostAnalysisOfPointers
from fusionscope.versions.jaxlib_0_8 import gpu as newer
from fusionscope.versions.jaxlib_0_9_2.gpu import GPU_0_9_2

GPU_0_7_2 = replace(
    GPU_0_9_2,
    formulas=replace(
        GPU_0_9_2.formulas,
        analysis=CostAnalysisOfPointers,
        compute_time=compute_time_of_whole_flops,
    ),
    triton=replace(GPU_0_9_2.triton, compute_time=compute_time_of_whole_flops),
)

_PIPELINES = {
    name: passes
    for name, passes in newer.COMPILER.pipelines.items()
    if name != "autotune-fusion-emitters"
}

COMPILER = replace(
    newer.COMPILER, name="gpu-0.7.2", release="0.7.2", pipelines=_PIPELINES, gpu=GPU_0_7_2
)
