"""The rules of CPU instruction fusion, in the compiler's order.

Source of all: xla/service/cpu/cpu_instruction_fusion.cc, ShouldFuse, unless stated otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fusionscope.graph.layouts import minor_to_major
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import COMPLEX, is_effective_scalar, is_elementwise
from fusionscope.passes.cpu.instruction_fusion.expense import is_expensive
from fusionscope.passes.indexing import emitted_too_often
from fusionscope.passes.inplace import IN_PLACE_RULES, InPlaceRule
from fusionscope.passes.pair_rules import (
    Eligible,
    ExpensiveDuplicate,
    GloballyUnfusible,
    PairRule,
    Root,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair, FusionState

_EMITTABLE = frozenset(
    """bitcast broadcast concatenate dynamic-slice dynamic-update-slice gather iota pad reduce
    reshape reverse slice transpose""".split()
)


def can_be_loop(instruction: MutableInstruction) -> bool:
    """Source: CanBeLoopFused."""
    return instruction.opcode in _EMITTABLE or is_elementwise(instruction)


def can_be_output_fused(producer: MutableInstruction, consumer: MutableInstruction) -> bool:
    """Return whether ``producer`` is a matrix-vector product that only the add ``consumer`` reads,
    once.

    Source: CanBeOutputFused.
    """
    return (
        consumer.opcode == "add"
        and producer.opcode == "dot"
        and producer.shape.element_type not in COMPLEX
        and producer.shape.rank <= 1
        and not producer.attribute("lhs_batch_dims")
        and len(producer.users) == 1
        and sum(operand is producer for operand in consumer.operands) == 1
    )


class SkipCustom(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-skip-custom"
    lasts: ClassVar = True
    message: ClassVar = "Don't fuse instructions from custom fusions/calls"
    is_legality: ClassVar = True
    # Whether the pass visits reducers, comparators and the like. It has not since jaxlib 0.10.1.
    visits_embedded: ClassVar = False
    # Whether it skips those of custom calls. It has since jaxlib 0.5.
    skips_called: ClassVar = True
    # Whether it skips those of what the fusion emitters compute. It has since jaxlib 0.7.
    skips_emitted: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse() if pair.consumer in state.skipped else None


class SkipCustomInEmbedded(SkipCustom):
    __slots__ = ()
    visits_embedded: ClassVar = True


class SkipCustomOnly(SkipCustomInEmbedded):
    __slots__ = ()
    skips_emitted: ClassVar = False


class SkipCustomFusions(SkipCustomOnly):
    __slots__ = ()
    skips_called: ClassVar = False


def find_skipping(book: RuleBook[Rule]) -> SkipCustom:
    """Return the rule that says what the pass does not visit."""
    rule = book.find(SkipCustom.id)
    return rule if isinstance(rule, SkipCustom) else SkipCustom()


class SoftmaxCoupling(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-softmax-coupling"
    is_asked_first: ClassVar = True
    lasts: ClassVar = True
    message: ClassVar = "operand can not be duplicated"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        obstacle = state.globally_unfusible.get(pair.producer)
        return self.refuse() if obstacle and obstacle.rule == self.id else None

    def keeps(self, producer: MutableInstruction) -> bool:
        """Return whether ``producer`` is the value. Source: IsCoupledReductionShiftExpProducer."""
        if producer.opcode == "fusion" or not is_elementwise(producer):
            return False
        maximum = next((user for user in producer.users if _takes_maximum(user, producer)), None)
        return maximum is not None and any(
            _subtracts_maximum(user, maximum) for user in producer.users
        )


def _takes_maximum(user: MutableInstruction, of: MutableInstruction) -> bool:
    return (
        user.opcode == "reduce"
        and user.operands[0] is of
        and user.called[0].root.opcode == "maximum"
    )


def _subtracts_maximum(user: MutableInstruction, maximum: MutableInstruction) -> bool:
    """Return whether a user subtracts the broadcast maximum, before an exponential."""
    return (
        user.opcode == "subtract"
        and any(o.opcode == "broadcast" and o.operands[0] is maximum for o in user.operands)
        and any(grand_user.opcode == "exponential" for grand_user in user.users)
    )


class NonscalarConstant(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-nonscalar-constant"
    lasts: ClassVar = True
    message: ClassVar = "Don't fuse non-scalar constants."

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        if producer.opcode == "constant" and not is_effective_scalar(producer.shape):
            return self.refuse(elements=producer.shape.element_count)
        return None


class OutputFuseDot(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-output-fuse-dot"
    lasts: ClassVar = True
    only_allows: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.allow() if can_be_output_fused(pair.producer, pair.consumer) else None


class DotAddBail(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-dot-add-bail"
    lasts: ClassVar = True
    message: ClassVar = "Bailing because producer can be output-fused into some operand."

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        if producer.opcode == "add" and any(
            can_be_output_fused(operand, producer) for operand in producer.operands
        ):
            return self.refuse()
        return None


class LoopFusibleProducer(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-loop-fusible-producer"
    lasts: ClassVar = True
    message: ClassVar = "Producer is not loop-fusible."
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        if can_be_loop(pair.producer):
            return None
        return self.refuse(producer=pair.producer.backend_kind or pair.producer.opcode)


@dataclass(frozen=True, slots=True)
class Concatenate(PairRule):
    id: ClassVar = "cpu-concat"
    lasts: ClassVar = True
    message: ClassVar = "Concatenate fusion is inefficient."

    max_operands: int = 8

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        for end in (pair.producer, pair.consumer):
            if end.opcode != "concatenate":
                continue
            if len(end.operands) > self.max_operands:
                return self.refuse(operands=len(end.operands), max_operands=self.max_operands)
            extent = _minor_extent(end)
            if extent is not None and self.is_long(end, extent):
                return self.refuse(extent=extent, bytes=end.shape.byte_size)
        return None

    @abstractmethod
    def is_long(self, concatenate: MutableInstruction, extent: int) -> bool:
        """Return whether the ``extent`` of its minor-most dimension keeps it unfused."""


@dataclass(frozen=True, slots=True)
class ConcatenateInBytes(Concatenate):
    min_extent_bytes: int = 64
    min_bytes: int = 2048

    def is_long(self, concatenate: MutableInstruction, extent: int) -> bool:
        return (
            extent * concatenate.shape.bits // 8 >= self.min_extent_bytes
            and concatenate.shape.byte_size >= self.min_bytes
        )


def _minor_extent(concatenate: MutableInstruction) -> int | None:
    """Return the extent of the result in the concatenated dimension, if that is minor-most."""
    shape = concatenate.shape
    dimension: int = concatenate.attribute("dimensions")[0]
    order = shape.layout.minor_to_major if shape.layout else tuple(reversed(range(shape.rank)))
    if shape.rank <= 1 or order[0] != dimension:
        return None
    return shape.dimensions[dimension]


class ExpensiveReuse(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-expensive-reuse"
    lasts: ClassVar = True
    message: ClassVar = "Fusion is not profitable."

    @staticmethod
    def is_expensive(operation: MutableInstruction) -> bool:
        """Return whether the pass avoids computing the operation twice."""
        return is_expensive(operation)

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        if (
            pair.producer.opcode != "fusion"
            and state.is_expensive(pair.producer)
            and pair.producer in state.reused_operands(pair.consumer)
        ):
            return self.refuse(expensive=pair.producer.opcode)
        return None


@dataclass(frozen=True, slots=True)
class MaxReductions(PairRule):
    id: ClassVar = "cpu-max-reductions"
    message: ClassVar = "Too many reductions inside single fusion."

    limit: int = 5

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        if pair.consumer.opcode == "fusion" and pair.producer.opcode == "reduce":
            reductions = sum(
                instruction.opcode == "reduce" for instruction in pair.consumer.fused.instructions
            )
            if reductions > self.limit:
                return self.refuse(reductions=reductions, limit=self.limit)
        return None


class ConstantIntoOperation(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-constant-into-op"
    message: ClassVar = "Not fusing: insufficient non-constant nodes."

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        if pair.producer.opcode == "constant" and pair.consumer.opcode != "fusion":
            return self.refuse()
        return None


class ProducerFusion(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-producer-fusion"
    message: ClassVar = "Not fusing: producer is itself a fusion node."
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse() if pair.producer.opcode == "fusion" else None


@dataclass(frozen=True, slots=True)
class CodeDuplication(PairRule):
    id: ClassVar = "cpu-code-dup"
    message: ClassVar = "Code duplication too high"

    limit: int = 15

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        if not state.may_duplicate or pair.consumer.opcode != "fusion":
            return None
        evaluation = state.evaluation(pair.consumer)
        if producer.opcode == "broadcast":
            return None
        excess = emitted_too_often(producer, evaluation.emitted(producer), self.limit)
        return self.refuse(None, **excess) if excess else None


@dataclass(frozen=True, slots=True)
class SmallMatrixVector(PairRule):
    id: ClassVar = "cpu-small-matvec"
    only_allows: ClassVar = True

    bytes: int = 16384

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        consumer = pair.consumer
        if consumer.opcode != "dot" or consumer.shape.rank > 1 or pair.slot > 1:
            return None
        vector = consumer.operands[1 - pair.slot].shape
        if vector.rank == 1 and vector.byte_size < self.bytes:
            return self.allow(vector_bytes=vector.byte_size, bytes=self.bytes)
        return None


class MajorReduction(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-major-reduction"
    message: ClassVar = "Not fusing reductions over major dimensions"

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        for end in (pair.consumer, pair.producer):
            if end.opcode == "reduce":
                order = minor_to_major(end.operands[0].shape)
                reduced: tuple[int, ...] = end.attribute("dimensions")
                if order and order[0] not in reduced:
                    return self.refuse(minor=order[0], reduced=" ".join(map(str, reduced)))
        return None


class IntoLoopFusion(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-into-loop-fusion"
    only_allows: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.allow() if pair.consumer.is_loop_fusion else None


class IntoLoopOperation(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-into-loop-op"
    only_allows: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.allow() if can_be_loop(pair.consumer) else None


class NoCase(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-no-case"
    message: ClassVar = "Not fusing: not found a fusible case"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse(consumer=pair.consumer.opcode)


CPU_FUSION: RuleBook[PairRule | InPlaceRule] = RuleBook(
    "cpu-fusion",
    "fusion",
    "cpu",
    (
        Eligible(),
        GloballyUnfusible(),
        SoftmaxCoupling(),
        SkipCustom(),
        NonscalarConstant(),
        OutputFuseDot(),
        DotAddBail(),
        LoopFusibleProducer(),
        ConcatenateInBytes(),
        ExpensiveReuse(),
        Root(),
        ExpensiveDuplicate(),
        *IN_PLACE_RULES,
        MaxReductions(),
        ConstantIntoOperation(),
        ProducerFusion(),
        CodeDuplication(),
        SmallMatrixVector(),
        IntoLoopFusion(),
        IntoLoopOperation(),
        NoCase(),
    ),
)
