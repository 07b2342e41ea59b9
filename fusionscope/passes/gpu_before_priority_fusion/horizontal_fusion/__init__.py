"""Horizontal fusion: kernels that do not depend on each other become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu_before_priority_fusion.horizontal_fusion.run import (
            HorizontalInputFusion,
            HorizontalLoopFusion,
        )

        joins_loops = self.name.endswith("loop_fusion")
        horizontal = HorizontalLoopFusion if joins_loops else HorizontalInputFusion
        return horizontal(graph, self.book, context.gpu_state()).run()
