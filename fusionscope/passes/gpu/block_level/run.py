"""Replays the pass that converts finished fusions to Triton fusions.

Source: xla/backends/gpu/transforms/fusion_block_level_rewriter.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.gpu.state import GpuState
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.block_level.rules import BlockLevelRule, BlockLevelTiling
from fusionscope.passes.gpu.triton_fusion import set_triton_config
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, RuleBook, first_decision


def run(graph: MutableModule, book: RuleBook[BlockLevelRule], context: PassContext) -> FusionPlan:
    return FusionBlockLevelRewriter(graph, book, context.gpu_state()).run()


@dataclass(slots=True)
class FusionBlockLevelRewriter:
    """The pass over ``graph``, with the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[BlockLevelRule]
    state: GpuState

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        tilers = (rule for rule in self.book if isinstance(rule, BlockLevelTiling))
        tiler = next(tilers, BlockLevelTiling())  # every Triton fusion needs it
        for fusion in list(self.graph.walk()):
            if fusion.opcode == "fusion":
                checks = (rule.check(fusion, self.state) for rule in self.book)
                decision = first_decision(checks) or NO_OBJECTION
                if decision.allow:
                    tiling = tiler.find(fusion, self.state)
                    if isinstance(tiling, Tiling):
                        set_triton_config(fusion, tiling)
                    else:
                        decision = tiler.refuse(tiling.message)
                result = fusion if decision.allow else None
                decisions.append(decided(fusion, fusion, decision, result))
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)
