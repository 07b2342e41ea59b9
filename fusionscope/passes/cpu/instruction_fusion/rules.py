"""The rules of CPU instruction fusion, in the compiler's order.

Source of all: xla/service/cpu/cpu_instruction_fusion.cc, ShouldFuse, unless stated otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import COMPLEX, is_effective_scalar, is_elementwise
from fusionscope.passes.indexing import emitted_too_often
from fusionscope.passes.inplace import IN_PLACE_RULES, InPlaceRule
from fusionscope.passes.pair_rules import (
    Eligible,
    ExpensiveDuplicate,
    GloballyUnfusible,
    PairRule,
    Root,
)
from fusionscope.passes.rule import Decision, RuleBook
from fusionscope.passes.state import FusionPair, FusionState

_SOURCE = "xla/service/cpu/cpu_instruction_fusion.cc, ShouldFuse"
_EMITTABLE = frozenset(
    """bitcast broadcast concatenate dynamic-slice dynamic-update-slice gather iota pad reduce
    reshape reverse slice transpose""".split()
)
NO_YNN_FUSION = (
    "if it is a library fusion, XLA_FLAGS=--xla_disable_hlo_passes=dot-library-rewriter leaves "
    "its operations to the fusion pass; compare both, the total can get worse"
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
    title: ClassVar = "inside a library fusion or custom call"
    what: ClassVar = (
        "The consumer is a custom fusion (a library's), or is in a computation that a custom "
        "call, a scatter, or an operation that the emitters of fusions compute (map, reduce, "
        "reduce-window) calls."
    )
    why: ClassVar = (
        "A library computes a fixed set of operations; a fusion cannot be nested in a fusion."
    )
    lever: ClassVar = NO_YNN_FUSION
    source: ClassVar = (
        "xla/service/cpu/cpu_instruction_fusion.cc, ComputeInstructionsToSkip and ShouldFuse"
    )
    message: ClassVar = "Don't fuse instructions from custom fusions/calls"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse() if pair.consumer in state.skipped else None


class SoftmaxCoupling(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-softmax-coupling"
    is_asked_first: ClassVar = True
    lasts: ClassVar = True
    title: ClassVar = "softmax: the value under the maximum, computed once"
    what: ClassVar = (
        "The producer is elementwise, is reduced to its maximum, and that maximum, broadcast, is "
        "subtracted from it (or it from that) before an exponential. From jaxlib 0.11 on."
    )
    why: ClassVar = (
        "A recomputed copy may differ in the last digit from the value whose maximum was "
        "taken, and the exponential can turn that difference into an infinity."
    )
    source: ClassVar = "xla/service/cpu/cpu_instruction_fusion.cc, ComputeGloballyUnfusible"
    message: ClassVar = "operand can not be duplicated"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        kept = state.globally_unfusible.get(pair.producer)
        return self.refuse() if kept and kept.rule == self.id else None

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
    """Return whether a user of the value subtracts the broadcast maximum from it, before an
    exponential.
    """
    return (
        user.opcode == "subtract"
        and any(o.opcode == "broadcast" and o.operands[0] is maximum for o in user.operands)
        and any(each.opcode == "exponential" for each in user.users)
    )


class NonscalarConstant(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-nonscalar-constant"
    lasts: ClassVar = True
    title: ClassVar = "a constant with several elements stays outside"
    what: ClassVar = "The producer is a constant with more than one element."
    why: ClassVar = "It would be duplicated into the code of every fusion that reads it."
    source: ClassVar = _SOURCE
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
    title: ClassVar = "a matrix-vector product and its add"
    what: ClassVar = (
        "Allowed: the consumer is an add, the producer a dot of rank 0 or 1 without batch "
        "dimensions, not complex, whose only user is that add, which reads it once."
    )
    why: ClassVar = "The dot's own kernel can add to its result."
    source: ClassVar = "xla/service/cpu/cpu_instruction_fusion.cc, CanBeOutputFused"

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.allow() if can_be_output_fused(pair.producer, pair.consumer) else None


class DotAddBail(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-dot-add-bail"
    lasts: ClassVar = True
    title: ClassVar = "the add can go into its dot instead"
    what: ClassVar = "The producer is an add that cpu-output-fuse-dot would fuse with its dot."
    why: ClassVar = "Once fused into its consumer, it could no longer be fused with the dot."
    source: ClassVar = "xla/service/cpu/cpu_instruction_fusion.cc, CanBeOutputFusedIntoSomeOperand"
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
    title: ClassVar = "the producer cannot be part of a loop"
    what: ClassVar = (
        "The producer is neither elementwise nor one of bitcast, broadcast, concatenate, "
        "dynamic-slice, dynamic-update-slice, gather, iota, pad, reduce, reshape, reverse, slice, "
        "transpose."
    )
    why: ClassVar = (
        "The loop emitter computes one element at a time, which other operations do not allow."
    )
    lever: ClassVar = NO_YNN_FUSION
    source: ClassVar = "xla/service/cpu/cpu_instruction_fusion.cc, CanBeLoopFused"
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
    title: ClassVar = "concatenate of many operands or along last dimension"
    what: ClassVar = (
        "The producer or the consumer is a concatenate with more than max_operands operands, or "
        "one of rank 2 or more along the minor-most dimension of its layout whose result has "
        "min_extent_bytes or more in that dimension, and min_bytes or more in all (before jaxlib "
        "0.12: min_extent or more elements in that dimension)."
    )
    why: ClassVar = (
        "Fused, it becomes a tree of branches in the innermost loop; unfused, it is a few copies."
    )
    lever: ClassVar = "concatenate at most 8 operands, and not along the last dimension"
    source: ClassVar = (
        f"{_SOURCE} (August 2026: min_extent); the sizes in bytes were found by compiling with "
        "jaxlib 0.12.0.1"
    )
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
        """Return whether the ``extent`` of its minor-most dimension, in elements, keeps
        it unfused.
        """


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
    title: ClassVar = "the consumer would compute an expensive value repeatedly"
    what: ClassVar = (
        "The producer is expensive and not a fusion, and the consumer reads its elements more "
        "than once (as a broadcast does, or a dot that is not a product of vectors)."
    )
    why: ClassVar = "Each read inside a fusion recomputes the value."
    source: ClassVar = _SOURCE
    message: ClassVar = "Fusion is not profitable."

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
    title: ClassVar = "limit of reductions per fusion"
    what: ClassVar = (
        "The producer is a reduce and the consumer a fusion with more than limit reduces in it."
    )
    why: ClassVar = "Unrolled, they produce code that takes LLVM minutes to compile."
    lever: ClassVar = "split the operations that are fused here"
    source: ClassVar = _SOURCE
    message: ClassVar = "Too many reductions inside single fusion."

    limit: int = 5

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        if pair.consumer.opcode == "fusion" and pair.producer.opcode == "reduce":
            found = sum(each.opcode == "reduce" for each in pair.consumer.fused.instructions)
            if found > self.limit:
                return self.refuse(reductions=found, limit=self.limit)
        return None


class ConstantIntoOperation(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-constant-into-op"
    title: ClassVar = "a constant goes into fusions only"
    what: ClassVar = "The producer is a constant and the consumer is not a fusion."
    why: ClassVar = "A fusion of one operation and a constant gains nothing."
    source: ClassVar = _SOURCE
    message: ClassVar = "Not fusing: insufficient non-constant nodes."

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        if pair.producer.opcode == "constant" and pair.consumer.opcode != "fusion":
            return self.refuse()
        return None


class ProducerFusion(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-producer-fusion"
    title: ClassVar = "the producer is a finished fusion"
    what: ClassVar = "The producer is a fusion."
    why: ClassVar = "The CPU compiler does not fuse into the output of a fusion."
    source: ClassVar = _SOURCE
    message: ClassVar = "Not fusing: producer is itself a fusion node."
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.refuse() if pair.producer.opcode == "fusion" else None


@dataclass(frozen=True, slots=True)
class CodeDuplication(PairRule):
    id: ClassVar = "cpu-code-dup"
    title: ClassVar = "its code would be emitted too many times"
    what: ClassVar = (
        "The consumer is a fusion in which the code of the producer, which is not a "
        "broadcast, would be emitted more than limit times, or more than once if it is a "
        "concatenate, dot, dynamic-update-slice, pad, reduce or reduce-window (or if such a "
        "producer has more than one user). It is emitted once for each distinct way in which "
        "instructions index it."
    )
    why: ClassVar = "Every copy makes compilation slower."
    lever: ClassVar = "split the operations that are fused here"
    source: ClassVar = (
        "xla/service/fusion_node_indexing_evaluation.cc, CodeDuplicationTooHigh; "
        "xla/service/elemental_ir_emitter.cc, OpInvalidatesCache"
    )
    message: ClassVar = "Code duplication too high"

    limit: int = 15

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        if not state.may_duplicate or pair.consumer.opcode != "fusion":
            return None
        evaluation = state.evaluation(pair.consumer)
        if producer.opcode == "broadcast":
            return None
        found = emitted_too_often(producer, evaluation.emitted(producer), self.limit)
        return self.refuse(None, **found) if found else None


@dataclass(frozen=True, slots=True)
class SmallMatrixVector(PairRule):
    id: ClassVar = "cpu-small-matvec"
    only_allows: ClassVar = True
    title: ClassVar = "the matrix of a small vector"
    what: ClassVar = (
        "Allowed: the consumer is a dot of rank 0 or 1 whose other operand is a vector of "
        "fewer than bytes bytes."
    )
    why: ClassVar = (
        "The vector stays in the first-level cache, and the matrix need not be materialized."
    )
    source: ClassVar = _SOURCE

    bytes: int = 16384

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        consumer = pair.consumer
        if consumer.opcode != "dot" or consumer.shape.rank > 1 or pair.slot > 1:
            return None
        vector = consumer.operands[1 - pair.slot].shape
        if vector.rank == 1 and vector.byte_size < self.bytes:
            return self.allow(vector_bytes=vector.byte_size, bytes=self.bytes)
        return None


class IntoLoopFusion(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-into-loop-fusion"
    only_allows: ClassVar = True
    title: ClassVar = "into a loop fusion"
    what: ClassVar = "Allowed: the consumer is a loop fusion, and no earlier rule refuses the pair."
    source: ClassVar = _SOURCE

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.allow() if pair.consumer.is_loop_fusion else None


class IntoLoopOperation(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-into-loop-op"
    only_allows: ClassVar = True
    title: ClassVar = "into an operation that can be a loop"
    what: ClassVar = (
        "Allowed: the consumer is one of the operations of cpu-loop-fusible-producer, and no "
        "earlier rule refuses the pair."
    )
    source: ClassVar = _SOURCE

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        return self.allow() if can_be_loop(pair.consumer) else None


class NoCase(PairRule):
    __slots__ = ()
    id: ClassVar = "cpu-no-case"
    title: ClassVar = "the consumer cannot be part of a loop"
    what: ClassVar = "The consumer is neither a loop fusion nor an operation that can be a loop."
    why: ClassVar = "It has its own kernel or library call, which needs materialized operands."
    source: ClassVar = _SOURCE
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
