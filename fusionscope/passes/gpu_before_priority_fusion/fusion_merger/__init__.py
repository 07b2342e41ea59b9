"""The fusion merger: a fusion goes into all of its users, or stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu_before_priority_fusion.fusion_merger.run import FusionMerger

        return FusionMerger(graph, self.book, context.gpu_state()).run()
