"""The rules of multi-output fusion for GPUs that differ from those after priority fusion was added.

Source of all: xla/service/gpu/transforms/multi_output_fusion.cc, xla/service/gpu/gpu_fusible.cc of
October 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.gpu.cost.model import Estimate
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.multi_output_fusion.rules import (
    Connected,
    DisjointSlices,
    Heroes,
    LoopShape,
    MultiOutputState,
    OnlyUser,
    OutputChoice,
    OutputCodeSize,
    OutputCost,
    OutputCycle,
    OutputPair,
    OutputPairRule,
    OutputParameterBudget,
    OutputProducer,
    OutputRoot,
    ScalarParent,
    SeveralUpdates,
    SiblingCandidate,
    SiblingOrder,
)
from fusionscope.passes.gpu.priority_fusion.rules import ReductionBudget, SharedMemoryBudget
from fusionscope.passes.gpu_legacy.cost import estimate, excess_code
from fusionscope.passes.gpu_legacy.fusible import (
    find_clash,
    is_loop_fusible_producer,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook


class LoopFusibleOutputProducer(OutputProducer):
    """More instructions can begin a loop fusion."""

    __slots__ = ()

    def is_loop_fusible(self, instruction: MutableInstruction, gpu: GpuState) -> bool:
        return is_loop_fusible_producer(instruction)


class TiledHeroes(Heroes):
    """Transposes in plain loops share a kernel with everything."""

    __slots__ = ()

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        first, second = state.hero(pair.consumer), state.hero(pair.producer)
        clash = find_clash(first, second, state.gpu)
        return None if clash is None else self.refuse(clash)

    looks_at = OutputPairRule.looks_at


class OutputCostPerConsumer(OutputCost):
    """The estimate for each consumer includes the producer's computation and reads inside it."""

    __slots__ = ()

    def estimate(self, pair: OutputPair, state: MultiOutputState) -> Estimate:
        return estimate(state.gpu.model, pair.producer, (pair.consumer,), writes_producer=True)


@dataclass(frozen=True, slots=True)
class BranchingOutputCodeSize(OutputCodeSize):
    """The code doubles with each branch."""

    branches: int = 10

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        excess = excess_code(
            pair.producer,
            pair.consumer,
            state.gpu,
            most_branches=self.branches,
            limit=self.limit,
        )
        return self.refuse(None, **excess) if excess else None


MULTI_OUTPUT_BEFORE_PRIORITY_FUSION: RuleBook[Rule] = RuleBook(
    "legacy-multi-output",
    "multi_output_fusion",
    "gpu",
    (
        ScalarParent(),
        OutputRoot(),
        SiblingCandidate(),
        SiblingOrder(),
        LoopFusibleOutputProducer(),
        OnlyUser(),
        Connected(),
        TiledHeroes(),
        LoopShape(),
        DisjointSlices(),
        SeveralUpdates(),
        OutputCycle(),
        SharedMemoryBudget(),
        ReductionBudget(),
        OutputParameterBudget(),
        BranchingOutputCodeSize(),
        OutputCostPerConsumer(),
        OutputChoice(),
    ),
)
