"""Overrides by the user: pairs to fuse, or to keep apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, NamedTuple

from fusionscope.graph.buffers import CONTROL_FLOW, walk_control_flow
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand
from fusionscope.hlo.search import reachable, unfold
from fusionscope.passes.pair_rules import PairRule
from fusionscope.passes.rule import Decision
from fusionscope.passes.state import FusionPair

BARRIER = "opt-barrier"
_VIEWS = frozenset({"bitcast", "get-tuple-element", BARRIER, "reshape"})
_NAMING = frozenset({"constant", "get-tuple-element", "parameter", "tuple"})


class PairPattern(NamedTuple):
    """A producer and a consumer by name before fusion or by opcode, with ``*`` and ``?``."""

    producer: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}"

    def fits(self, pair: FusionPair) -> bool:
        """Return whether the consumer would read what the producer computes in one kernel, and the
        pattern matches the operations that compute and read it.
        """
        return any(_is_named(maker, self.producer) for maker in _makers(pair.producer)) and any(
            _is_named(reader, self.consumer) for reader in _readers(pair)
        )

    def leads_through(self, pair: FusionPair) -> bool:
        """Return whether one of the two is a view between operations that the pattern matches: they
        come into one kernel only together with it.
        """
        source = behind_views(pair.producer)
        return any(
            _is_named(maker, self.producer) and _is_named(reader, self.consumer)
            for maker in _makers(source)
            for reader in _readers(pair, beyond=True)
        )


def _is_named(instruction: MutableInstruction, pattern: str) -> bool:
    """Return whether ``pattern`` is its name before fusion, or its opcode: another instruction may
    have that name in the stage that a pass works on.
    """
    names = (instruction.origin, instruction.opcode)
    return any(fnmatchcase(name, pattern) for name in names if name)


def _is_passed_on(instruction: MutableInstruction) -> bool:
    """Return whether an instruction only passes on its operand, or is a conversion that a pass
    inserted.
    """
    opcode = instruction.opcode
    return opcode in _VIEWS or (opcode == "convert" and not instruction.origin)


def behind_views(value: MutableInstruction) -> MutableInstruction:
    """Return what computes ``value``, which may be a view of it."""
    while _is_passed_on(value) and value.operands:
        value = value.operands[0]
    return value


def _makers(producer: MutableInstruction) -> Iterator[MutableInstruction]:
    """Yield the producer, and the operations in it that compute its results."""
    yield producer
    if producer.opcode == "fusion":
        yield from unfold([producer.fused.root], _inputs)


def maker_names(producer: MutableInstruction) -> Iterator[str]:
    """Yield the names by which patterns may mean ``producer``, or what it is a view of."""
    for value in dict.fromkeys((producer, behind_views(producer))):
        for maker in _makers(value):
            yield maker.origin
            yield maker.opcode


def _inputs(value: MutableInstruction) -> list[MutableInstruction]:
    if value.opcode == "fusion":
        return [value.fused.root]
    return value.operands if value.opcode == "tuple" or _is_passed_on(value) else []


def _readers(pair: FusionPair, *, beyond: bool = False) -> Iterator[MutableInstruction]:
    """Yield the users of the producer: the consumer, or the operations inside it. If ``beyond`` is
    set, a consumer that is a view stands for its users.
    """
    consumer = pair.consumer
    starts = [consumer]
    if consumer.opcode == "fusion":
        starts = consumer.fused.parameters[pair.slot].users

    def behind(reader: MutableInstruction) -> list[MutableInstruction]:
        return reader.users if _is_passed_on(reader) and (beyond or reader is not consumer) else []

    return reachable(starts, behind)


def set_apart(graph: MutableModule, patterns: Sequence[PairPattern]) -> None:
    """Separate all matching pairs by a barrier. No pass fuses across one."""
    for computation in walk_control_flow(graph) if patterns else ():
        for consumer in computation.post_order():
            if consumer.opcode in CONTROL_FLOW | _NAMING or _is_passed_on(consumer):
                continue
            for slot, operand in enumerate(list(consumer.operands)):
                pair = FusionPair(behind_views(operand), consumer, slot)
                if any(pattern.fits(pair) for pattern in patterns):
                    barrier = computation.make(BARRIER, operand.shape, [operand])
                    replace_operand(consumer, operand, barrier)


def join_again(graph: MutableModule) -> None:
    """Remove what ``set_apart`` inserted."""
    for computation in walk_control_flow(graph):
        for instruction in computation.post_order():
            if instruction.opcode == BARRIER and not instruction.origin:
                computation.replace(instruction, instruction.operands[0])


def _are_meant(patterns: Sequence[PairPattern], pair: FusionPair) -> bool:
    """Return whether fusing the pair puts one that ``patterns`` match into a kernel, or is a step
    to it.
    """
    return any(pattern.fits(pair) or pattern.leads_through(pair) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Allowed(PairRule):
    """Not one of the compiler's: pairs that a user wants fused, as far as that is legal."""

    id: ClassVar = "user-allow"
    is_asked_first: ClassVar = True

    patterns: tuple[PairPattern, ...] = ()

    def check(self, pair: FusionPair, state: object = None) -> Decision | None:
        return self.allow() if _are_meant(self.patterns, pair) else None


@dataclass(frozen=True, slots=True)
class Forbidden(PairRule):
    """Not one of the compiler's: pairs that a user does not want fused."""

    id: ClassVar = "user-forbid"
    is_asked_first: ClassVar = True
    message: ClassVar = "forbidden by the user"

    patterns: tuple[PairPattern, ...] = ()
    excepted: tuple[PairPattern, ...] = ()

    def check(self, pair: FusionPair, state: object = None) -> Decision | None:
        is_meant = any(pattern.fits(pair) for pattern in self.patterns)
        if is_meant and not _are_meant(self.excepted, pair):
            return self.refuse()
        return None
