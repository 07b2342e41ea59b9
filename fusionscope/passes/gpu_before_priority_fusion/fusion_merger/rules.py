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
from fusionscope.passes.gpu_before_priority_fusion.cost import estimate, excess_code
from fusionscope.passes.gpu_before_priority_fusion.fusible import (
    FUSIBLE,
    PRODUCER_CONSUMER_RULES,
    find_clash,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair

_SOURCE = "xla/service/gpu/transforms/fusion_merger.cc, ShouldFuse"


class MergeRule(Rule):
    """A rule about a fusion and all of its users at once."""

    __slots__ = ()
    source: ClassVar = _SOURCE

    @abstractmethod
    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection."""


class NoUsers(MergeRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-users"
    title: ClassVar = "nothing reads the fusion"
    what: ClassVar = "The fusion has no users: it is the result of its computation."
    message: ClassVar = "fusion has no users"
    is_legality: ClassVar = True

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        return None if producer.users else self.refuse()


class NotLoopFusion(MergeRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-loop"
    title: ClassVar = "the fusion is not a loop"
    what: ClassVar = (
        "The fusion that would be merged into its users is not of kind kLoop: it ends in a "
        "reduction, scatter or tiled transpose, or belongs to Triton or a library."
    )
    why: ClassVar = "A reduction must be at the end of a kernel."
    message: ClassVar = "not a loop fusion"

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        kind = producer.fusion_kind or ""
        return None if producer.is_loop_fusion else self.refuse(kind=kind)


class MergeIntoBitcast(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-bitcast"
    title: ClassVar = "a user is a bitcast"
    what: ClassVar = "One of the users is a bitcast on its own."
    why: ClassVar = "It would become the root of a kernel, and costs nothing where it is."
    source: ClassVar = _SOURCE
    message: ClassVar = "not fusing bitcast ops"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.consumer.opcode == "bitcast" else None


class MergeIntoCustom(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-custom"
    title: ClassVar = "a user belongs to Triton or a library"
    what: ClassVar = (
        "One of the users is a custom fusion: one for Triton, cuDNN or a custom kernel."
    )
    why: ClassVar = "These were matched as a whole."
    source: ClassVar = _SOURCE
    message: ClassVar = "not fusing custom fusions"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.consumer.is_custom_fusion else None


class MergedHeroes(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-heroes"
    title: ClassVar = "they are emitted in different ways"
    what: ClassVar = (
        "The fusion and a user are reductions of different forms, or tiled transposes of "
        "different forms, or one of each; or one is a tiled transpose, and what the other one "
        "does with its elements prevents that."
    )
    why: ClassVar = "One kernel has one access pattern."
    source: ClassVar = f"{FUSIBLE}, FusionHeroesAreCompatible"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        one, other = (find_real_hero(end, state) for end in (pair.producer, pair.consumer))
        clash = find_clash(one, other, state)
        return None if clash is None else self.refuse(clash, producer=one.name, consumer=other.name)


@dataclass(frozen=True, slots=True)
class Uncoalesced(MergeRule):
    id: ClassVar = "leg-fm-uncoalesced"
    title: ClassVar = "a reduction would mostly read transposed data"
    what: ClassVar = (
        "A user is, or ends in, a reduction with cooperating threads, and copies and "
        "transposes that move elements produce at least this percentage of the fusion's "
        "number of elements."
    )
    why: ClassVar = "Neighbouring threads would read distant elements."
    lever: ClassVar = "reduce the other dimension of the untransposed array"
    message: ClassVar = "would read mostly uncoalesced"

    percent: int = 50

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        if not any(is_input_reduction(u, state.device, state.emitters) for u in producer.users):
            return None
        transposed = sum(
            _elements(each) for each in producer.fused.instructions if is_transposing(each)
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
    title: ClassVar = "its code would be emitted too often"
    what: ClassVar = (
        "For one of the users, the code of both would have more branches than allowed: one for "
        "each concatenate, dot, dynamic-update-slice, pad, reduce and reduce-window, as often as "
        "it is emitted. Or the instructions of the fusion, times how often the user's code "
        "computes it, and those of the user, doubled with each branch, are more than the limit."
    )
    why: ClassVar = (
        "Values computed before a branch are recomputed in it, so code grows exponentially."
    )
    lever: ClassVar = "break the chain with lax.optimization_barrier where it hurts least"

    limit: int = 10_000
    branches: int = 10

    def check(self, producer: MutableInstruction, state: GpuState) -> Decision | None:
        for user in producer.users:
            found = excess_code(
                producer, user, state, most_branches=self.branches, limit=self.limit
            )
            if found:
                return self.refuse(f"if merged with {user.name} will generate huge IR", **found)
        return None


class MergedSlower(MergeRule):
    __slots__ = ()
    id: ClassVar = "leg-fm-cost"
    title: ClassVar = "the cost model expects it to be slower"
    what: ClassVar = (
        "Computing the fusion inside each of its users, and reading its operands there, is "
        "estimated to take longer than its own kernel, a launch, and reading its result."
    )
    why: ClassVar = "Each user recomputes it."
    lever: ClassVar = "give the value one consumer: each would recompute it"
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
    title: ClassVar = "another user cannot take it"
    what: ClassVar = "Another user of the fusion refuses it, by another rule."
    why: ClassVar = (
        "A value that is fused into only some users must still be computed for the others: "
        "nothing is saved."
    )
    lever: ClassVar = "the other user is the obstacle: give it its own copy of the value"
    source: ClassVar = _SOURCE

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
