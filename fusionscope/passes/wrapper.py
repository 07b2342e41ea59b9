"""Replays the pass that wraps unfused operations in fusions.

Source: xla/codegen/emitters/fusion_wrapper_base.cc, xla/backends/gpu/transforms/fusion_wrapper.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionscope.graph.fusing import create_fusion
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
)
from fusionscope.hlo.search import reachable
from fusionscope.passes.operation import OperationRule, decide
from fusionscope.passes.plan import FusionPlan, PairDecision
from fusionscope.passes.rule import RuleBook

_CONTROL_FLOW = frozenset({"async-start", "call", "conditional", "while"})


def _called(computation: MutableComputation) -> list[MutableComputation]:
    return [
        called
        for instruction in computation.post_order()
        if instruction.opcode in _CONTROL_FLOW
        for called in instruction.called
    ]


@dataclass(slots=True)
class FusionWrapper:
    """The pass over ``graph``, with the rules of ``book``. ``kind_of`` returns the kind of the
    fusion for an operation.
    """

    graph: MutableModule
    book: RuleBook[OperationRule]
    kind_of: Callable[[MutableInstruction], str] = lambda _: "kLoop"

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        for computation in reachable([self.graph.entry], _called):
            decisions += [
                self._consider(instruction)
                for instruction in computation.post_order()
                if instruction.opcode not in _CONTROL_FLOW
            ]
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def _consider(self, instruction: MutableInstruction) -> PairDecision:
        decision = decide(self.book, instruction)
        computation, name = instruction.computation, instruction.name
        fusion_name: str | None = None
        if decision.allow:
            wrapped = f"wrapped_{instruction.opcode}"
            kind = self.kind_of(instruction)
            fusion = create_fusion(instruction, kind, wrapped, inside=f"{wrapped}_computation")
            computation.replace(instruction, fusion)
            fusion_name = fusion.name
        return PairDecision(
            computation=computation.name,
            producer=name,
            consumer=name,
            decision=decision,
            fusion=fusion_name,
        )
