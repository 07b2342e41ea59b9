"""Rules about consumers that update a buffer in place.

A kernel that reads a buffer in one place and overwrites it in another could read new values. The
compiler therefore fuses only patterns that are known to be safe.

Source of all: xla/service/instruction_fusion.cc, ShouldFuseInPlaceOp.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from fusionscope.graph.aliasing import InPlace, follow_tuples, in_place_operands
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise, slice_ranges
from fusionscope.hlo.search import reachable
from fusionscope.passes.rule import Decision, Rule
from fusionscope.passes.state import FusionPair


class InPlaceRule(Rule):
    """A rule about one operand that the consumer overwrites. Allowing ends all questions about the
    pair's operands in place."""

    __slots__ = ()
    is_legality: ClassVar = True

    @abstractmethod
    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        """Return the decision, or None to leave the pair to the next rule."""


def check_in_place(rules: tuple[InPlaceRule, ...], pair: FusionPair) -> Decision | None:
    """Return the decision on all operands that the consumer overwrites, or None."""
    for update in in_place_operands(pair.consumer):
        is_involved = _is_involved(pair, update)
        for rule in rules:
            if is_involved or isinstance(rule, ExtraOperand):
                decision = rule.check(pair, update)
                if decision is not None:
                    return None if decision.allow else decision
    return None


def _is_involved(pair: FusionPair, update: InPlace) -> bool:
    """Return whether the producer is, or reads, the operand that the consumer overwrites."""
    buffer = pair.consumer.operands[update.slot]
    return buffer is pair.producer or buffer in pair.producer.operands


def _is_shaping(instruction: MutableInstruction) -> bool:
    """Return whether it is neither elementwise nor transparent."""
    return instruction.opcode not in ("bitcast", "fusion", "parameter") and not is_elementwise(
        instruction
    )


def _inside(instruction: MutableInstruction) -> Iterable[MutableInstruction]:
    """Return the instruction itself, or the instructions inside a fusion."""
    return instruction.fused.instructions if instruction.opcode == "fusion" else (instruction,)


def _shaping_in(instruction: MutableInstruction) -> list[MutableInstruction]:
    """Return the instructions that are not elementwise: itself, or those inside a fusion."""
    return [inner for inner in _inside(instruction) if _is_shaping(inner)]


def updates_in(instruction: MutableInstruction) -> list[MutableInstruction]:
    """Return the dynamic-update-slices: itself, or those inside a fusion."""
    return [inner for inner in _inside(instruction) if inner.opcode == "dynamic-update-slice"]


def _outside(fusion: MutableInstruction, operand: MutableInstruction) -> MutableInstruction:
    """Return the operand of a fusion for one of its parameters."""
    if fusion.opcode == "fusion" and operand.opcode == "parameter":
        return fusion.operands[operand.parameter_number]
    return operand


_INTEGER = re.compile(r"[{\s]*(-?\d+)")


def _first_integer(instruction: MutableInstruction) -> int | None:
    """Return the first element of a constant, or None if it is not a constant of integers."""
    number = _INTEGER.match(instruction.literal) if instruction.opcode == "constant" else None
    return int(number[1]) if number else None


class ExtraOperand(InPlaceRule):
    __slots__ = ()
    id: ClassVar = "inplace-extra-operand"
    message: ClassVar = (
        "The consumer is an in-place operation that has an additional operand that has the same "
        "value as the in-place buffer"
    )

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        operands = pair.consumer.operands
        again = sum(operand is operands[update.slot] for operand in operands) - 1
        return self.refuse(operands=again + 1) if again else None


class MultipleShaping(InPlaceRule):
    __slots__ = ()
    id: ClassVar = "inplace-multi-nonelementwise"
    message: ClassVar = "Producer fusion has multiple non-elementwise ops, bailing."

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        count = len(_shaping_in(pair.producer))
        return self.refuse(found=count) if count > 1 else None


class ElementwiseProducer(InPlaceRule):
    __slots__ = ()
    id: ClassVar = "inplace-elementwise-producer"
    message: ClassVar = "Non-elementwise ops in consumer lead to inplace conflict after fusion."

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        if _shaping_in(pair.producer):
            return None
        consumer = pair.consumer
        if consumer.opcode != "fusion":
            return self.allow()
        last, _ = follow_tuples(consumer.fused.root, update.output)
        parameter = consumer.fused.parameters[consumer.operands.index(pair.producer)]
        reached = _reached_from(parameter)
        if any(shaping in reached and shaping is not last for shaping in _shaping_in(consumer)):
            return self.refuse()
        return self.allow()


def _reached_from(start: MutableInstruction) -> set[MutableInstruction]:
    """Return ``start`` and its transitive users, in its computation."""
    return {*reachable([start], lambda value: value.users)}


class NoUpdate(InPlaceRule):
    __slots__ = ()
    id: ClassVar = "inplace-no-dus"

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        return None if updates_in(pair.consumer) else self.allow()


class MultipleUpdates(InPlaceRule):
    __slots__ = ()
    id: ClassVar = "inplace-multi-dus"
    message: ClassVar = "multiple dus ops, bailing."

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        count = len(updates_in(pair.consumer))
        return self.refuse(found=count) if count > 1 else None


class SlicePair(InPlaceRule):
    """A rule about a producer whose one instruction that is not elementwise is ``opcode``."""

    __slots__ = ()
    opcode: ClassVar[str]

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        slices, updates = _shaping_in(pair.producer), updates_in(pair.consumer)
        if not slices or not updates or slices[0].opcode != self.opcode:
            return None
        return self.check_slice(pair, slices[0], updates[0])

    @abstractmethod
    def check_slice(
        self, pair: FusionPair, slice_: MutableInstruction, last: MutableInstruction
    ) -> Decision | None:
        """Return the decision on a producer's slice. ``last`` is the consumer's update."""


class _SliceShape(SlicePair):
    __slots__ = ()

    def check_slice(
        self, pair: FusionPair, slice_: MutableInstruction, last: MutableInstruction
    ) -> Decision | None:
        update = last.operands[1].shape
        if slice_.shape == update:
            return None
        return self.refuse(slice=str(slice_.shape), update=str(update))


class SliceShape(_SliceShape):
    __slots__ = ()
    id: ClassVar = "inplace-slice-shape"
    opcode: ClassVar = "slice"
    message: ClassVar = (
        "Slice op has a different shape than the update shape of the dus op, bailing."
    )


class SliceIndex(SlicePair):
    __slots__ = ()
    id: ClassVar = "inplace-slice-index"
    opcode: ClassVar = "slice"
    message: ClassVar = "DUS and slice index mismatch"

    def check_slice(
        self, pair: FusionPair, slice_: MutableInstruction, last: MutableInstruction
    ) -> Decision | None:
        ranges = slice_ranges(slice_)
        for dimension, index in enumerate(last.operands[2:]):
            at, read = _first_integer(_outside(pair.consumer, index)), ranges[dimension]
            if at != read.start or read.step != 1:
                return self.refuse(
                    dimension=dimension,
                    slice=read.start,
                    stride=read.step,
                    update="not constant" if at is None else at,
                )
        return None


class _SliceSafe(SlicePair):
    __slots__ = ()

    def check_slice(
        self, pair: FusionPair, slice_: MutableInstruction, last: MutableInstruction
    ) -> Decision | None:
        consumer = pair.consumer
        if consumer.opcode == "fusion":
            for parameter, operand in zip(
                consumer.fused.parameters, consumer.operands, strict=True
            ):
                if operand is pair.producer and any(
                    instruction is not last
                    and instruction.opcode != "parameter"
                    and not is_elementwise(instruction)
                    for instruction in _reached_from(parameter)
                ):
                    return self.refuse()
        return self.allow()


class SliceSafe(_SliceSafe):
    __slots__ = ()
    id: ClassVar = "inplace-slice-safe"
    opcode: ClassVar = "slice"
    message: ClassVar = (
        "Fusing slice into DUS will also fuse another non-elementwise op with shared operand as "
        "DUS."
    )


class DynamicSliceShape(_SliceShape):
    __slots__ = ()
    id: ClassVar = "inplace-ds-shape"
    opcode: ClassVar = "dynamic-slice"
    message: ClassVar = (
        "Dynamic slice op has a different shape than the update shape of the dus op, bailing."
    )


class DynamicSliceIndex(SlicePair):
    __slots__ = ()
    id: ClassVar = "inplace-ds-index"
    opcode: ClassVar = "dynamic-slice"
    message: ClassVar = "DUS and DS index mismatch"

    def check_slice(
        self, pair: FusionPair, slice_: MutableInstruction, last: MutableInstruction
    ) -> Decision | None:
        indices = zip(slice_.operands[1:], last.operands[2:], strict=False)
        for dimension, (read, updated) in enumerate(indices):
            slice_index = _outside(pair.producer, read)
            update_index = _outside(pair.consumer, updated)
            at = _first_integer(slice_index)
            if at != _first_integer(update_index) or (
                at is None and slice_index is not update_index
            ):
                return self.refuse(
                    dimension=dimension, slice=slice_index.name, update=update_index.name
                )
        return None


class DynamicSliceSafe(_SliceSafe):
    __slots__ = ()
    id: ClassVar = "inplace-ds-safe"
    opcode: ClassVar = "dynamic-slice"
    message: ClassVar = (
        "Fusing DS into DUS will also fuse another non-elementwise op with shared operand as DUS."
    )


class Other(InPlaceRule):
    __slots__ = ()
    id: ClassVar = "inplace-other"
    message: ClassVar = "unrecognized inplace update non-elementwise output pair"

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        shaping = _shaping_in(pair.producer)
        return self.refuse(producer=shaping[0].opcode) if shaping else None


IN_PLACE_RULES: tuple[InPlaceRule, ...] = (
    ExtraOperand(),
    MultipleShaping(),
    ElementwiseProducer(),
    NoUpdate(),
    MultipleUpdates(),
    SliceShape(),
    SliceIndex(),
    SliceSafe(),
    DynamicSliceShape(),
    DynamicSliceIndex(),
    DynamicSliceSafe(),
    Other(),
)
