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
        decided = {each: decide(self.book, each) for each in dict.fromkeys(sort.operands)}
        taken = [operand for operand, decision in decided.items() if decision.allow]
        made: str | None = None
        if taken:
            fusion = create_fusion(sort, "kCustom")
            made = fusion.name
            for operand in taken:
                fuse_instruction(fusion, operand)
            computation.replace(sort, fusion)
            for operand in taken:
                if not operand.users:
                    computation.remove(operand)
        return [
            PairDecision(
                computation=computation.name,
                producer=operand.name,
                consumer=name,
                decision=decision,
                fusion=made if decision.allow else None,
            )
            for operand, decision in decided.items()
        ]
