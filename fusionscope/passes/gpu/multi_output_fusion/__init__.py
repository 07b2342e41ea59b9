"""Fusions of several outputs, for GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu.multi_output_fusion.run import GpuMultiOutputFusion

        return GpuMultiOutputFusion(graph, self.book, context.gpu_state()).run()
