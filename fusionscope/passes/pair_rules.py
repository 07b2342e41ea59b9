"""The rules that instruction fusion shares on all backends.

Source of all: xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import (
    is_effective_scalar,
    is_fusible,
    leaves,
    true_rank,
)
from fusionscope.passes.causes import count_users
from fusionscope.passes.rule import Decision, Rule
from fusionscope.passes.state import FusionPair, FusionState

ONE_CONSUMER = "give the value one consumer: each would recompute it"


class PairRule(Rule):
    """A rule about a producer and one of its consumers.

    ``is_asked_first`` marks rules outside of ShouldFuse. The search for producers that must not be
    duplicated does not ask them. ``lasts`` marks rules that fuse nothing into a fusion, and whose
    refusals of a producer last while a fusion grows.
    """

    __slots__ = ()
    is_asked_first: ClassVar[bool] = False
    lasts: ClassVar[bool] = False

    @abstractmethod
    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        """Return the decision, or None to leave the pair to the next rule."""


class Eligible(PairRule):
    __slots__ = ()
    id: ClassVar = "base-eligible"
    is_asked_first: ClassVar = True
    lasts: ClassVar = True
    title: ClassVar = "one of the two can never be fused"
    what: ClassVar = (
        "The producer, or a consumer that is not a fusion, is a parameter, call, while, "
        "conditional or domain, or has a side effect (infeed, send, a custom call that says so; a "
        "random number generator with several users)."
    )
    why: ClassVar = "A kernel has no control flow of this kind, and an effect must happen once."
    source: ClassVar = "xla/service/instruction_fusion.cc, RunImpl; HloInstruction::IsFusible"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        for end in (pair.consumer, pair.producer):
            if not is_fusible(end):
                return self.refuse(unfusible=end.opcode)
        return None


class GloballyUnfusible(PairRule):
    __slots__ = ()
    id: ClassVar = "base-globally-unfusible"
    is_asked_first: ClassVar = True
    lasts: ClassVar = True
    title: ClassVar = "recomputing it in each consumer costs more"
    what: ClassVar = (
        "The producer reads more than one large operand, reads more elements than it "
        "produces, and cannot be fused into all of its consumers on all paths, so it would be "
        "both duplicated and materialized. An operand is large if it has at least the rank "
        "of the result, not counting dimensions of 1, and is not a broadcast, iota or scalar "
        "constant."
    )
    why: ClassVar = "Recomputing it reads all of its operands again."
    lever: ClassVar = ONE_CONSUMER
    source: ClassVar = "xla/service/instruction_fusion.cc, ComputeGloballyUnfusible"
    message: ClassVar = "operand can not be duplicated"

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        kept = state.globally_unfusible.get(pair.producer)
        return self.refuse(obstacle=kept.because) if kept and kept.rule == self.id else None

    def keeps_candidate(self, producer: MutableInstruction) -> bool:
        """Return whether computing ``producer`` again would read more than one large operand, and
        more elements than it produces.
        """
        return not at_most_unary(producer) and _elements_read(producer) > _elements(producer)


def at_most_unary(instruction: MutableInstruction) -> bool:
    """Source: EffectivelyAtMostUnary."""
    rank = max((true_rank(leaf) for leaf in leaves(instruction.shape)), default=0)
    large = 0
    for operand in instruction.operands:
        if operand.opcode in ("broadcast", "iota") or (
            operand.opcode == "constant" and is_effective_scalar(operand.shape)
        ):
            continue
        large += (true_rank(operand.shape) if operand.shape.is_array else 0) >= rank
    return large <= 1


def _elements(instruction: MutableInstruction) -> int:
    return sum(leaf.element_count for leaf in leaves(instruction.shape))


def _elements_read(instruction: MutableInstruction) -> int:
    return sum(_elements(operand) for operand in dict.fromkeys(instruction.operands))


class Root(PairRule):
    __slots__ = ()
    id: ClassVar = "base-root"
    title: ClassVar = "the producer is the computation's own result"
    what: ClassVar = "The producer is the root of its computation, which another instruction reads."
    why: ClassVar = "The result of a computation must be materialized, by one instruction."
    source: ClassVar = "xla/service/instruction_fusion.cc, ShouldFuse"
    message: ClassVar = "not fusing into the output of the root instruction"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse() if pair.producer.is_root else None


class ExpensiveDuplicate(PairRule):
    __slots__ = ()
    id: ClassVar = "base-expensive-dup"
    title: ClassVar = "duplication is too expensive, or not allowed"
    what: ClassVar = (
        "The producer has other users and is expensive (or the pass may not duplicate anything), "
        "and is neither a broadcast nor a conversion to a wider type."
    )
    why: ClassVar = "Each fusion that includes it recomputes it."
    lever: ClassVar = ONE_CONSUMER
    source: ClassVar = "xla/service/instruction_fusion.cc, ShouldFuse and IsAlwaysDuplicable"
    message: ClassVar = "expensive producer would be duplicated"

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        users = len(producer.users)
        if (users == 1 and pair.consumer in producer.users) or _is_always_duplicable(producer):
            return None
        if not state.may_duplicate:
            return self.refuse("fusion pass cannot duplicate", **count_users(producer.users))
        if state.is_expensive(producer):
            return self.refuse(None, **count_users(producer.users))
        return None


def _is_always_duplicable(instruction: MutableInstruction) -> bool:
    if instruction.opcode == "convert":
        return instruction.operands[0].shape.byte_size < instruction.shape.byte_size
    return instruction.opcode == "broadcast"
