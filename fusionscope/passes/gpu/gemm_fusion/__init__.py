"""Fusions around matrix multiplications, which Triton computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.passes.gpu.gemm_fusion.rules import GemmState
        from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
        from fusionscope.passes.gpu.gemm_fusion.run_v1 import GemmFusionV1
        from fusionscope.passes.gpu.gemm_fusion.run_v2 import GemmFusionV2

        target = context.target
        state = GemmState(target.device, target.gpu_model.gemm_threshold, target.gpu_model.triton)
        growth = GemmFusionV2 if self.book.name == GPU_GEMM_V2.name else GemmFusionV1
        return growth(graph, self.book, state).run()
