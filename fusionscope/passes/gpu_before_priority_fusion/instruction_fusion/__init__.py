"""Instruction fusion for GPUs: one run that computes nothing twice, and one that may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.gpu_before_priority_fusion.instruction_fusion.run import (
        GpuInstructionFusion,
    )
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu_before_priority_fusion.instruction_fusion.rules import (
            DUPLICATING,
            is_expensive,
        )
        from fusionscope.passes.state import FusionState

        state = FusionState(is_expensive=is_expensive, may_duplicate=self.name == DUPLICATING)
        return self.replay()(graph, self.book, state, context.gpu_state()).run()

    def replay(self) -> type[GpuInstructionFusion]:
        from fusionscope.passes.gpu_before_priority_fusion.instruction_fusion.run import (
            GpuInstructionFusion,
        )

        return GpuInstructionFusion
