"""Copies of what a fusion computes become outputs of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu.copy_fusion.run import CopyFusion

        return CopyFusion(graph, self.book, context.gpu_state()).run()
