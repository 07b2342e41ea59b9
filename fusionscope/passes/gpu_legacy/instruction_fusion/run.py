"""Replays instruction fusion for GPUs, the predecessor of priority fusion.

Source: xla/service/gpu/transforms/instruction_fusion.cc of October 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.gpu.kinds import choose_kind
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.priority_fusion.computation import fusible_computations
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.gpu_legacy.instruction_fusion.rules import (
    DUPLICATING,
    is_expensive,
)
from fusionscope.passes.instruction_fusion import InstructionFusion, Question
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.passes.state import FusionPair, FusionState


@dataclass(slots=True)
class GpuInstructionFusion(InstructionFusion):
    """One of the two runs of the pass. ``state`` says whether it may duplicate."""

    gpu: GpuState

    def computations(self) -> list[MutableComputation]:
        return fusible_computations(self.graph)

    def question(self, rule: Rule) -> Question | None:
        if isinstance(rule, GpuPairRule):
            return rule.check, self.gpu
        return InstructionFusion.question(self, rule)

    def choose_kind(self, pair: FusionPair) -> str:
        return choose_kind(pair.producer, pair.consumer, self.gpu.device, self.gpu.emitters)

    def fuse(self, pair: FusionPair) -> MutableInstruction:
        fusion = InstructionFusion.fuse(self, pair)
        for changed in (fusion, pair.consumer, pair.producer):
            self.gpu.changed(changed)
        return fusion


def run(
    graph: MutableModule,
    book: RuleBook[Rule],
    context: PassContext,
    replay: type[GpuInstructionFusion] = GpuInstructionFusion,
) -> FusionPlan:
    may_duplicate = book.pass_name == DUPLICATING
    state = FusionState(is_expensive=is_expensive, may_duplicate=may_duplicate)
    return replay(graph, book, state, context.deadline, context.gpu_state()).run()
