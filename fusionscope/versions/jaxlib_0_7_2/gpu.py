"""The fusion passes of jaxlib 0.7.2 for GPUs: as in 0.8, but a unit computes whole flops, and
dynamic slices are operands of Triton's matrix multiplications, and slices of shared values are not.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.gpu.cost.memory import compute_time_of_whole_flops
from fusionscope.passes.gpu.gemm_fusion.rules import GemmState
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import OrderedCandidate, OrderedOpcode
from fusionscope.passes.rule import Decision
from fusionscope.versions.jaxlib_0_7_2.cost_analysis import CostAnalysisOfPointers
from fusionscope.versions.jaxlib_0_8 import gpu as newer
from fusionscope.versions.jaxlib_0_8.gpu import GPU_0_8
from fusionscope.versions.jaxlib_0_10_0.gpu import GPU_GEMM_V1_0_10_0
from fusionscope.versions.jaxlib_0_10_2.gpu import GivenSliceWorth

GPU_0_7_2 = replace(
    GPU_0_8,
    formulas=replace(
        GPU_0_8.formulas,
        analysis=CostAnalysisOfPointers,
        compute_time=compute_time_of_whole_flops,
    ),
    triton=replace(
        GPU_0_8.triton, compute_time=compute_time_of_whole_flops, has_endless_tilings=True
    ),
)


class SlicedOperand(OrderedOpcode):
    """A dynamic slice is an operand as others are."""

    __slots__ = ()

    def check(self, candidate: OrderedCandidate, state: GemmState) -> Decision | None:
        if candidate.instruction.opcode == "dynamic-slice":
            return None
        return OrderedOpcode.check(self, candidate, state)


GPU_GEMM_V1_0_7_2 = (
    GPU_GEMM_V1_0_10_0.renamed("gpu-gemm-v1-0.7.2")
    .with_rule(SlicedOperand())
    .with_rule(GivenSliceWorth())
)

_PIPELINES = {
    name: passes
    for name, passes in newer.COMPILER.pipelines.items()
    if name != "autotune-fusion-emitters"
}

COMPILER = replace(
    newer.COMPILER, name="gpu-0.7.2", release="0.7.2", pipelines=_PIPELINES, gpu=GPU_0_7_2
).with_books(GPU_GEMM_V1_0_7_2)
