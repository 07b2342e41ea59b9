"""Replays the pass that fuses a sort with its iota operand.

Source: xla/backends/gpu/transforms/sort_iota_fusion.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.graph.fusing import create_fusion, fuse_instruction
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.operation import OperationRule, decide
from fusionscope.passes.plan import FusionPlan, PairDecision
from fusionscope.passes.rule import RuleBook


def run(graph: MutableModule, book: RuleBook[OperationRule], context: PassContext) -> FusionPlan:
    return SortIotaFusion(graph, book).run()


@dataclass(slots=True)
class SortIotaFusion:
    """The pass over ``graph``, with the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[OperationRule]

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        for computation in self.graph.post_order():
            for instruction in [] if computation.is_fused else computation.post_order():
                if instruction.opcode == "sort":
                    decisions += self._consider(instruction)
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def _consider(self, sort: MutableInstruction) -> list[PairDecision]:
        computation, name = sort.computation, sort.name
        decided = {operand: decide(self.book, operand) for operand in dict.fromkeys(sort.operands)}
        fused_operands = [operand for operand, decision in decided.items() if decision.allow]
        fusion_name: str | None = None
        if fused_operands:
            fusion = create_fusion(sort, "kCustom")
            fusion_name = fusion.name
            for operand in fused_operands:
                fuse_instruction(fusion, operand)
            computation.replace(sort, fusion)
            for operand in fused_operands:
                if not operand.users:
                    computation.remove(operand)
        return [
            PairDecision(
                computation=computation.name,
                producer=operand.name,
                consumer=name,
                decision=decision,
                fusion=fusion_name if decision.allow else None,
            )
            for operand, decision in decided.items()
        ]
