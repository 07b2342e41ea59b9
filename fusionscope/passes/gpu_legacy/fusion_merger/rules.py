"""The rules of the fusion merger, which merges a fusion into all of its users or none.

Source of all: xla/service/gpu/transforms/fusion_merger.cc of October 2024 (now gone), unless stated
otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fusionscope.gpu.cost.duration import microseconds
from fusionscope.gpu.cost.model import Estimate, is_input_reduction
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import leaves
from fusionscope.passes.gpu.multi_output_fusion.rules import find_real_hero, is_transposing
from fusionscope.passes.gpu.priority_fusion.rules import (
    GpuPairRule,
    ParameterBudget,
    ReductionBudget,
    SharedMemoryBudget,
)
from fusionscope.passes.gpu_legacy.cost import estimate, excess_code
from fusionscope.passes.gpu_legacy.fusible import (
    PRODUCER_CONSUMER_RULES,
    find_clash,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair


class MergeRule(Rule):
    """A rule about a fusion and all of its users at once."""

    __slots__ = ()

    @abstractmethod
    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection."""


class NoUsers(MergeRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-users"
    message: ClassVar = "fusion has no users"
    is_legality: ClassVar = True

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        return None if producer.users else self.refuse()


class NotLoopFusion(MergeRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-loop"
    message: ClassVar = "not a loop fusion"

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        kind = producer.fusion_kind or ""
        return None if producer.is_loop_fusion else self.refuse(kind=kind)


class MergeIntoBitcast(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-bitcast"
    message: ClassVar = "not fusing bitcast ops"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.consumer.opcode == "bitcast" else None


class MergeIntoCustom(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-custom"
    message: ClassVar = "not fusing custom fusions"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.consumer.is_custom_fusion else None


class MergedHeroes(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-heroes"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        producer_hero, consumer_hero = (
            find_real_hero(end, state) for end in (pair.producer, pair.consumer)
        )
        clash = find_clash(producer_hero, consumer_hero, state)
        return (
            None
            if clash is None
            else self.refuse(clash, producer=producer_hero.name, consumer=consumer_hero.name)
        )


@dataclass(frozen=True, slots=True)
class Uncoalesced(MergeRule):
    id: ClassVar = "leg-fm-uncoalesced"
    message: ClassVar = "would read mostly uncoalesced"

    percent: int = 50

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        if not any(is_input_reduction(u, state.device, state.emitters) for u in producer.users):
            return None
        transposed = sum(
            _elements(instruction)
            for instruction in producer.fused.instructions
            if is_transposing(instruction)
        )
        elements = _elements(producer)
        if elements and transposed and 100 * transposed >= self.percent * elements:
            return self.refuse(transposed=transposed, elements=elements)
        return None


def _elements(instruction: MutableInstruction) -> int:
    return sum(leaf.element_count for leaf in leaves(instruction.shape))


@dataclass(frozen=True, slots=True)
class MergedCode(MergeRule):
    id: ClassVar = "leg-fm-ir"

    limit: int = 10_000
    branches: int = 10

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        for user in producer.users:
            excess = excess_code(
                producer, user, state, most_branches=self.branches, limit=self.limit
            )
            if excess:
                return self.refuse(f"if merged with {user.name} will generate huge IR", **excess)
        return None


class MergedSlower(MergeRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-cost"
    message: ClassVar = "will execute slower if fused"

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        unfused, fused = self.estimate(producer, state)
        if fused <= unfused:
            return None
        return self.refuse(
            fused_us=f"{microseconds(fused):g}", unfused_us=f"{microseconds(unfused):g}"
        )

    def estimate(self, producer: MutableInstruction, state: GpuState) -> Estimate:
        return estimate(state.model, producer, producer.users)


class AllMerge(Rule):
    __slots__ = ()
    id: ClassVar = "leg-fm-all-users"

    def refuse_because(self, user: str, decision: Decision) -> Decision:
        """Return a refusal because ``user`` refuses, by ``decision``."""
        return self.refuse(decision.message, because=f"{user}, {decision.rule}")


FUSION_MERGER: RuleBook[Rule] = RuleBook(
    "legacy-fusion-merger",
    "fusion_merger",
    "gpu",
    (
        NoUsers(),
        NotLoopFusion(),
        MergeIntoBitcast(),
        MergeIntoCustom(),
        MergedHeroes(),
        *PRODUCER_CONSUMER_RULES,
        Uncoalesced(),
        SharedMemoryBudget(),
        ReductionBudget(),
        ParameterBudget(),
        MergedCode(),
        MergedSlower(),
        AllMerge(),
    ),
)
