"""Which computations instruction fusion went through early in 2023."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableComputation, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.fusion_pass import FusionPass
from fusionscope.passes.gpu_legacy.instruction_fusion.run import (
    GpuInstructionFusion,
    run,
)
from fusionscope.passes.plan import FusionPlan


class InstructionFusion2023(GpuInstructionFusion):
    __slots__ = ()

    def computations(self) -> list[MutableComputation]:
        """Those that are applied to single elements too, but not what a softmax library computes.

        Source: GpuInstructionFusion::GetFusionComputations of February 2023.
        """
        order = self.graph.post_order()
        in_library = {
            callee
            for computation in order
            for instruction in computation.instructions
            if instruction.attributes.get("custom_call_target") == '"__softmax_fusion"'
            for callee in instruction.called
        }
        return [
            computation
            for computation in order
            if not computation.is_fused and computation not in in_library
        ]


class InstructionFusionPass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        return run(graph, self.book, context, InstructionFusion2023)
