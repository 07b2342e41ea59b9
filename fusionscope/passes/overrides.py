"""Overrides by the user: pairs to fuse, or to keep apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, NamedTuple

from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo import Module
from fusionscope.passes.pair_rules import PairRule
from fusionscope.passes.rule import Decision
from fusionscope.passes.state import FusionPair


class PairPattern(NamedTuple):
    """A producer and a consumer by name or opcode, with ``*`` and ``?``."""

    producer: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}"

    def fits(self, pair: FusionPair) -> bool:
        """Return whether the pattern matches the producer, or the operation in it that makes the
        value, and the user of that value in the consumer.
        """
        return any(_is_named(maker, self.producer) for maker in _makers(pair)) and any(
            _is_named(reader, self.consumer) for reader in _readers(pair)
        )


def unmatched_patterns(patterns: Iterable[PairPattern], module: Module) -> list[PairPattern]:
    """Return the patterns that match no pair of ``module``. Raises ``UnusableInput`` if the module
    contradicts itself.
    """
    left = list(patterns)
    for instruction in MutableModule(module).walk() if left else ():
        for slot, operand in enumerate(instruction.operands):
            pair = FusionPair(operand, instruction, slot)
            left = [pattern for pattern in left if not pattern.fits(pair)]
    return left


def _is_named(instruction: MutableInstruction, pattern: str) -> bool:
    names = (instruction.name, instruction.origin, instruction.opcode)
    return any(fnmatchcase(name, pattern) for name in names)


def _makers(pair: FusionPair) -> Iterable[MutableInstruction]:
    """Return the producer, and the last operation in it."""
    if pair.producer.opcode != "fusion":
        return (pair.producer,)
    return (pair.producer, pair.producer.fused.root)


def _readers(pair: FusionPair) -> Iterable[MutableInstruction]:
    """Return the users of the producer: the consumer, or instructions inside it."""
    if pair.consumer.opcode != "fusion":
        return (pair.consumer,)
    return pair.consumer.fused.parameters[pair.slot].users


@dataclass(frozen=True, slots=True)
class Allowed(PairRule):
    """Not one of the compiler's: pairs that a user wants fused, as far as that is legal."""

    id: ClassVar = "user-allow"
    title: ClassVar = "asked for with --allow"
    what: ClassVar = "Allowed where no rule objects without which the result would be wrong."
    source: ClassVar = "--allow"
    is_asked_first: ClassVar = True

    patterns: tuple[PairPattern, ...] = ()

    def check(self, pair: FusionPair, state: object = None) -> Decision | None:
        return self.allow() if any(each.fits(pair) for each in self.patterns) else None


@dataclass(frozen=True, slots=True)
class Forbidden(PairRule):
    """Not one of the compiler's: pairs that a user does not want fused."""

    id: ClassVar = "user-forbid"
    title: ClassVar = "asked for with --forbid"
    what: ClassVar = "Refused."
    source: ClassVar = "--forbid"
    is_asked_first: ClassVar = True
    message: ClassVar = "forbidden by the user"

    patterns: tuple[PairPattern, ...] = ()
    excepted: tuple[PairPattern, ...] = ()

    def check(self, pair: FusionPair, state: object = None) -> Decision | None:
        is_meant = any(each.fits(pair) for each in self.patterns)
        if is_meant and not any(each.fits(pair) for each in self.excepted):
            return self.refuse()
        return None
