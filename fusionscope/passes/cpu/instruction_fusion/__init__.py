"""Instruction fusion for CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.cpu.instruction_fusion.expense import is_expensive
        from fusionscope.passes.cpu.instruction_fusion.run import CpuInstructionFusion, find_skipped
        from fusionscope.passes.state import FusionState

        state = FusionState(
            is_expensive=is_expensive,
            may_duplicate=not context.has_multi_output,
            skipped=find_skipped(graph, emitters=context.has_emitters),
        )
        return CpuInstructionFusion(graph, self.book, state).run()
