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
    message: ClassVar = "operand can not be duplicated"

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        obstacle = state.globally_unfusible.get(pair.producer)
        return (
            self.refuse(obstacle=obstacle.because)
            if obstacle and obstacle.rule == self.id
            else None
        )

    def keeps_candidate(self, producer: MutableInstruction) -> bool:
        """Return whether it reads several large operands, and more elements than it produces."""
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
    message: ClassVar = "not fusing into the output of the root instruction"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse() if pair.producer.is_root else None


class ExpensiveDuplicate(PairRule):
    __slots__ = ()
    id: ClassVar = "base-expensive-dup"
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
