"""Replays the pass that fuses a sort with its iota operand.

Source: xla/backends/gpu/transforms/sort_iota_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """The pass over ``graph``, which it changes, with the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[OperationRule]

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        for computation in self.graph.post_order():
            if not computation.is_fused:
                sorts = [item for item in computation.post_order() if item.opcode == "sort"]
                for sort in sorts:
                    decisions += self._fuse_operands(sort)
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def _fuse_operands(self, sort: MutableInstruction) -> list[PairDecision]:
        """Fuse the operands that the rules allow. Return the decision on each operand."""
        computation, name = sort.computation, sort.name  # a fused sort has left it
        decisions = {
            operand: decide(self.book, operand) for operand in dict.fromkeys(sort.operands)
        }
        allowed = [operand for operand, decision in decisions.items() if decision.allow]
        fusion = _create_fusion(sort, allowed) if allowed else None
        return [
            PairDecision(
                computation=computation.name,
                producer=operand.name,
                consumer=name,
                decision=decision,
                fusion=fusion.name if fusion is not None and decision.allow else None,
            )
            for operand, decision in decisions.items()
        ]


def _create_fusion(
    sort: MutableInstruction, operands: Sequence[MutableInstruction]
) -> MutableInstruction:
    """Put a fusion of ``sort`` and ``operands`` in the place of ``sort``."""
    computation = sort.computation
    fusion = create_fusion(sort, "kCustom")
    for operand in operands:
        fuse_instruction(fusion, operand)
    computation.replace(sort, fusion)
    for operand in operands:
        if not operand.users:
            computation.remove(operand)
    return fusion
