"""Replays the pass that forms Triton fusions around matrix multiplications."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.gemm_fusion.rules import GemmState
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
from fusionscope.passes.gpu.gemm_fusion.run_v1 import GemmFusionV1
from fusionscope.passes.gpu.gemm_fusion.run_v2 import GemmFusionV2
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import Rule, RuleBook


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    target = context.target
    state = GemmState(target.device, target.gpu_model.gemm_threshold, target.gpu_model.triton)
    growth = GemmFusionV2 if book.name == GPU_GEMM_V2.name else GemmFusionV1
    return growth(graph, book, state).run()
