"""Replays instruction fusion for GPUs, which priority fusion replaced.

Source: xla/service/gpu/transforms/instruction_fusion.cc of October 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.gpu.kinds import choose_kind
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.gpu.priority_fusion.run import fusible_computations
from fusionscope.passes.instruction_fusion import InstructionFusion, Judge, Step
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair, FusionState


class _Judge(Judge):
    def __init__(self, book: RuleBook[Rule], state: FusionState, gpu: GpuState) -> None:
        super().__init__(book, state)
        self._gpu = gpu

    def check(self, step: Step, pair: FusionPair) -> Decision | None:
        if isinstance(step, GpuPairRule):
            return step.check(pair, self._gpu)
        return super().check(step, pair)


@dataclass(slots=True)
class GpuInstructionFusion(InstructionFusion):
    """One of the two runs of the pass: ``state`` says whether it may compute things twice."""

    gpu: GpuState

    def computations(self) -> list[MutableComputation]:
        return fusible_computations(self.graph)

    def judge(self) -> Judge:
        return _Judge(self.book, self.state, self.gpu)

    def choose_kind(self, pair: FusionPair) -> str:
        return choose_kind(pair.producer, pair.consumer, self.gpu.device, self.gpu.emitters)

    def fuse(self, pair: FusionPair) -> MutableInstruction:
        fusion = InstructionFusion.fuse(self, pair)
        for changed in (fusion, pair.consumer, pair.producer):
            self.gpu.changed(changed)
        return fusion
