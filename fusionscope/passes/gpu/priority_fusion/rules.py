"""The rules of priority fusion, which fuses a producer into all of its consumers or none.

Source of all: xla/backends/gpu/transforms/priority_fusion.cc, xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from fusionscope.gpu.cost.duration import (
    TICKS_PER_NANOSECOND,
    Duration,
    written,
)
from fusionscope.gpu.cost.model import PairCost
from fusionscope.gpu.emitters import EmitterKind, is_generic_triton
from fusionscope.gpu.state import GpuState, is_scatter
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair

_UNTILEABLE = "Fusion can not be tiled with SymbolicTileAnalysis: "


class RulePhase(Enum):
    """When a rule is asked: for every pair, for whether Triton can compute the two together, for
    whether another emitter can and, after all others, for pairs whose producer is a constant.
    """

    FIRST = "first"
    TRITON = "triton"
    EMITTER = "emitter"
    CONSTANT = "constant"


class GpuPairRule(Rule):
    """A rule about a producer and one of its consumers."""

    __slots__ = ()
    stages: ClassVar[tuple[RulePhase, ...]] = (RulePhase.EMITTER,)

    @abstractmethod
    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the pair."""

    def looks_at(self, sibling: MutableInstruction, state: GpuState) -> Hashable:
        """As that of ``OutputPairRule``, for the rules that multi-output fusion has too."""
        return sibling


class PriorityRoot(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "pf-root"
    stages: ClassVar = (RulePhase.FIRST,)
    message: ClassVar = "not fusing into the output of the root instruction"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.producer.is_root else None


class PriorityFusible(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "pf-is-fusible"
    stages: ClassVar = (RulePhase.FIRST,)
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        for role, end in (("producer", pair.producer), ("consumer", pair.consumer)):
            if not state.facts(end).is_fusible:
                return self.refuse(f"the {role} is not fusible", unfusible=end.opcode)
        return None


class TritonHeroless(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "tri-heroless"
    stages: ClassVar = (RulePhase.TRITON,)
    message: ClassVar = "triton heroless fusion is not enabled"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        if state.gpu_model.has_heroless_triton or any(
            is_generic_triton(end) for end in (pair.producer, pair.consumer)
        ):
            return None
        return self.refuse()


class TritonSupport(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "triton-support"
    stages: ClassVar = (RulePhase.TRITON,)
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        for end in (pair.producer, pair.consumer):
            message = state.triton.unsupported(end)
            if message is not None:
                return self.refuse(message, unsupported=end.name)
        return None


@dataclass(frozen=True, slots=True)
class ParameterBudget(GpuPairRule):
    id: ClassVar = "budget-params"
    stages: ClassVar = (RulePhase.TRITON, RulePhase.EMITTER)
    message: ClassVar = (
        "Number of operands and output buffers is larger than allowed budget per fusion"
    )

    limit: int = 96

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.check_both(pair.consumer, pair.producer, state, grows_consumer=True)

    def check_both(
        self,
        first: MutableInstruction,
        second: MutableInstruction,
        state: GpuState,
        *,
        grows_consumer: bool,
    ) -> Decision | None:
        """Return the decision. ``grows_consumer`` says that ``second`` is fused into ``first`` and
        nothing else.
        """
        outputs = state.facts(first).buffers + state.facts(second).buffers
        if len(first.operands) + len(second.operands) - 1 + outputs <= self.limit:
            return None
        operands = {*first.operands, *second.operands} - {first, second}
        if grows_consumer and len(operands) <= len(first.operands):
            return None
        count = len(operands) + outputs
        return self.refuse(buffers=count, limit=self.limit) if count > self.limit else None


class TritonTiling(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "tri-tiling"
    stages: ClassVar = (RulePhase.TRITON,)
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        problem = state.find_tiling_problem(pair.producer, pair.consumer)
        return None if problem is None else self.refuse(f"{_UNTILEABLE}{problem}")


class IntoBitcast(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "pf-into-bitcast"
    message: ClassVar = "not fusing into a single bitcast as consumer"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if state.facts(pair.consumer).is_fusible_bitcast else None


class Scatter(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "pf-scatter"
    stages: ClassVar = (RulePhase.EMITTER, RulePhase.CONSTANT)
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        producer, consumer = pair.producer, pair.consumer
        if is_scatter(producer):
            return self.refuse("do not fuse into the output of scatter")
        if not is_scatter(consumer):
            return None
        slot = 0
        if consumer.opcode == "fusion":
            slot = consumer.fused.root.operands[0].parameter_number
        buffer = consumer.operands[slot]
        if buffer is producer:
            return self.refuse("do not fuse into the in-place operand of scatter")
        if buffer in producer.operands:
            return self.refuse("Producer uses the in-place operand of a scatter")
        return None


@dataclass(frozen=True, slots=True)
class TwoReduces(GpuPairRule):
    id: ClassVar = "pf-two-reduces"
    message: ClassVar = "both the producer and the consumer contain a reduce"

    elements: int = 16

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        sizes = [state.facts(end).largest_reduction for end in (pair.producer, pair.consumer)]
        if min(sizes) < self.elements:
            return None
        return self.refuse(producer=sizes[0], consumer=sizes[1], elements=self.elements)


class ReduceToLoop(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "pf-reduce-to-loop"
    message: ClassVar = "fusion into output of a reduce fusion would create a loop fusion"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        if not pair.producer.holds("reduce"):
            return None
        if state.model.emission(pair.producer).kind is not EmitterKind.REDUCTION:
            return None
        together = state.model.kind(pair.producer, pair.consumer)
        return self.refuse() if together is EmitterKind.LOOP else None


class SharedMemoryBudget(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "budget-shmem"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        limit = state.device.shared_memory_per_block
        shared_bytes = (
            state.facts(pair.producer).shared_memory + state.facts(pair.consumer).shared_memory
        )
        if shared_bytes <= limit:
            return None
        message = f"shared memory usage would be over the budget of {limit}B"
        return self.refuse(message, bytes=shared_bytes, limit=limit)

    def looks_at(self, sibling: MutableInstruction, state: GpuState) -> Hashable:
        return state.facts(sibling).shared_memory


@dataclass(frozen=True, slots=True)
class ReductionBudget(GpuPairRule):
    id: ClassVar = "budget-reductions"

    limit: int = 8

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        count = state.facts(pair.producer).reductions + state.facts(pair.consumer).reductions
        if count <= self.limit:
            return None
        message = f"over {self.limit} unnested reductions in fusion"
        return self.refuse(message, reductions=count, limit=self.limit)

    def looks_at(self, sibling: MutableInstruction, state: GpuState) -> Hashable:
        return state.facts(sibling).reductions


@dataclass(frozen=True, slots=True)
class CodeDuplication(GpuPairRule):
    id: ClassVar = "pf-code-dup"
    message: ClassVar = "the fusion would result in an overly large code duplication"

    limit: int = 10_000

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        size = state.model.merged_size(pair.producer, pair.consumer)
        return self.refuse(instructions=size, limit=self.limit) if size > self.limit else None


class AllUsers(Rule):
    __slots__ = ()
    id: ClassVar = "pf-all-users"
    only_bitcasts: ClassVar = "not fusing because there are only bitcast users"
    no_users: ClassVar = "No users to fuse"

    def refuse_because(
        self, consumer: str, decision: Decision, refusing: int, consumers: int
    ) -> Decision:
        """Return a refusal because ``consumer`` refuses, by ``decision``: the first of so many
        ``refusing`` ones of all ``consumers``."""
        return self.refuse(
            decision.message,
            because=f"{consumer}, {decision.rule}",
            refusing=f"{refusing} of {consumers} consumers",
        )


@dataclass(frozen=True, slots=True)
class NegativeBenefit(Rule):
    id: ClassVar = "pf-negative"
    loss: int = 0

    def tolerates(self, benefit: Duration) -> bool:
        """Return whether a ``benefit`` is tolerated. It is a duration, negative for a loss."""
        return benefit >= -self.loss * TICKS_PER_NANOSECOND

    def refuse_by(self, cost: PairCost) -> Decision:
        return self.refuse(
            f"Negative benefit ({written(cost.benefit)})",
            benefit=written(cost.benefit),
            unfused=written(cost.all.estimate.unfused),
            fused=written(cost.all.estimate.fused),
        )


@dataclass(frozen=True, slots=True)
class LargeConstant(GpuPairRule):
    id: ClassVar = "pf-large-constant"
    stages: ClassVar = (RulePhase.CONSTANT,)

    elements: int = 1

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        shape = pair.producer.shape
        count = shape.element_count if shape.is_array else self.elements + 1
        return self.refuse(elements=count, limit=self.elements) if count > self.elements else None


class ConstantUser(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "pf-constants"
    stages: ClassVar = (RulePhase.CONSTANT,)
    message: ClassVar = "User is not fusible"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        if is_generic_triton(pair.consumer):
            message = state.triton.unsupported(pair.producer)
            return None if message is None else self.refuse(message)
        if state.facts(pair.consumer).is_fusible:
            return None
        return self.refuse(unfusible=pair.consumer.opcode)


GPU_FUSION: RuleBook[Rule] = RuleBook(
    "gpu-fusion",
    "priority-fusion",
    "gpu",
    (
        PriorityRoot(),
        PriorityFusible(),
        TritonHeroless(),
        TritonSupport(),
        IntoBitcast(),
        Scatter(),
        TwoReduces(),
        ReduceToLoop(),
        SharedMemoryBudget(),
        ReductionBudget(),
        ParameterBudget(),
        TritonTiling(),
        CodeDuplication(),
        *IN_PLACE_RULES,
        AllUsers(),
        NegativeBenefit(),
        LargeConstant(),
        ConstantUser(),
    ),
)
