"""Priority fusion: the producer whose fusion saves the most time is fused first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion

        target = context.target
        return PriorityFusion(
            graph=graph,
            book=self.book,
            state=context.gpu_state(),
            ids=target.ids,
            users=target.users,
            recorded=target.recorded,
            tells_events=target.has_record,
        ).run()
