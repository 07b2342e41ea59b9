"""Rules for pairs that the compiler for TPUs refuses.

The code of that compiler is closed. These rules are regularities of its decisions: each was found
with some programs, and counted on others, that were compiled afterwards (``accuracy.py``).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fusionscope.graph.properties import is_effective_scalar, is_one_elementwise
from fusionscope.hlo import Instruction
from fusionscope.passes.causes import BY_OPCODE, Cause, ThroughTuple
from fusionscope.passes.rule import Rule
from fusionscope.passes.tpu.kernels import PRODUCTS, waits
from fusionscope.passes.tpu.pair import (
    TpuPair,
    changes_dimensions,
    ends_in_scatter,
    has_stride_within_tiles,
    has_window_within_tiles,
    is_gather,
    is_only_padded,
    is_read_by_products,
    is_scatter,
    keeps_minor_dimensions,
    pads_between,
    reverses_within_tiles,
)

PASS_NAME = "tpu_fusion"

# A matrix product is a convolution for a TPU, and is fused; a gather or scatter is in a kernel of
# its own before fusion, for which there are rules.
_FUSED_ON_TPU = PRODUCTS | {"reduce-window", "scatter"} | ThroughTuple.opcodes
_MOVING = frozenset("broadcast concatenate copy pad reshape reverse slice transpose".split())
_PARTS = frozenset({"dynamic-slice", "dynamic-update-slice"})


class TpuRule(Rule):
    """A regularity: a pair of which ``refuses`` is true is not fused."""

    __slots__ = ()
    source: ClassVar = "found by experiment; the code is closed"

    @abstractmethod
    def refuses(self, pair: TpuPair) -> bool:
        """Return whether the compiler keeps the two apart."""


class Scalar(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-scalar"
    title: ClassVar = "arithmetic with single values"
    what: ClassVar = (
        "The result of the consumer is a scalar, computed from another single value, and the "
        "consumer is no reduction. Outside of loops, the same holds for elementwise operations on "
        "arrays of one element."
    )
    why: ClassVar = (
        "Presumably since a TPU computes scalars in a unit of its own, apart from the vectors of a "
        "kernel. They take next to no time or memory."
    )

    def refuses(self, pair: TpuPair) -> bool:
        consumer = pair.consumer
        if not all(is_effective_scalar(each.shape) for each in (pair.producer, consumer)):
            return False
        if not consumer.shape.rank:
            return consumer.opcode != "reduce"
        return is_one_elementwise(consumer) and consumer.computation.is_entry


class Start(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-start"
    title: ClassVar = "where a part of an array begins"
    what: ClassVar = (
        "The consumer is a dynamic-slice or dynamic-update-slice, and the producer computes a "
        "scalar that says where the part begins."
    )
    why: ClassVar = (
        "Presumably since the kernel needs the address before it begins. The scalar takes next to "
        "no time or memory."
    )

    def refuses(self, pair: TpuPair) -> bool:
        producer = pair.producer
        is_scalar = producer.shape.is_array and not producer.shape.rank
        return pair.consumer.opcode in _PARTS and is_scalar and producer.opcode != "constant"


class IntoGather(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-into-gather"
    title: ClassVar = "a gather reads it"
    what: ClassVar = "The consumer is a gather: its table or its indices are the producer's value."
    why: ClassVar = (
        "The gather is a kernel before fusion begins, and reads its operands from memory."
    )
    lever: ClassVar = (
        "where the indices follow each other, slice instead: what reads a slice is fused with it"
    )

    def refuses(self, pair: TpuPair) -> bool:
        return is_gather(pair.consumer)


class GatherResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-gather-result"
    title: ClassVar = "the result of a gather"
    what: ClassVar = (
        "The producer is a gather, and the consumer is not a convolution. If it is a scatter, or "
        "only elementwise operations are between it and a scatter, the kernel of the scatter may "
        "gather, too."
    )
    why: ClassVar = "The gather is a kernel before fusion begins, and writes its result to memory."
    lever: ClassVar = IntoGather.lever

    def refuses(self, pair: TpuPair) -> bool:
        if not is_gather(pair.producer) or pair.consumer.opcode in PRODUCTS:
            return False
        return not ends_in_scatter(pair.consumer)


class IntoScatter(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-into-scatter"
    title: ClassVar = "a scatter's indices, or updates in one dimension"
    what: ClassVar = (
        "The consumer is a scatter. The producer's value are its indices, or its updates if these "
        "have one dimension. Other updates and the array that it starts from are fused."
    )
    why: ClassVar = "The scatter is a kernel before fusion begins, which reads its indices first."

    def refuses(self, pair: TpuPair) -> bool:
        if not is_scatter(pair.consumer) or 0 in pair.slots:
            return False
        read = pair.consumer.operands[pair.slots[-1]].shape
        return 1 in pair.slots or read.rank <= 1


class ScatterResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-scatter-result"
    title: ClassVar = "the result of a scatter"
    what: ClassVar = "The producer is a scatter."
    why: ClassVar = (
        "Presumably since it updates an array in memory, of which no element is known before the "
        "last update."
    )

    def refuses(self, pair: TpuPair) -> bool:
        return is_scatter(pair.producer)


class ReduceResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-reduce-result"
    title: ClassVar = "the result of a reduction"
    what: ClassVar = "The producer is a reduction, whatever reads its result."
    why: ClassVar = (
        "A kernel ends with its reductions: in no dump does one go on with the result of one."
    )

    def refuses(self, pair: TpuPair) -> bool:
        return pair.producer.opcode == "reduce"


class TiledWindow(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-window"
    title: ClassVar = "windows within the tiles"
    what: ClassVar = (
        "One of the two is a reduce-window whose windows extend along one of the two minor-most "
        "dimensions of the layout, as those of cumulative sums often do. Windows along other "
        "dimensions, as in pooling of images, are fused."
    )
    why: ClassVar = (
        "Presumably since the two minor-most dimensions are stored in tiles of 8 by 128 elements "
        "or similar: such a window combines elements of one tile, and of its neighbours."
    )

    def refuses(self, pair: TpuPair) -> bool:
        if pair.producer.opcode == "constant":
            return False  # a reduction begins with it
        return any(map(has_window_within_tiles, (pair.producer, pair.consumer)))


class UpdateResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-update-result"
    title: ClassVar = "the result of an update in place"
    what: ClassVar = "The producer is a dynamic-update-slice."
    why: ClassVar = (
        "Presumably since it writes a part of an array that is in memory, and stays there."
    )

    def refuses(self, pair: TpuPair) -> bool:
        return pair.producer.opcode == "dynamic-update-slice"


class UpdatedArray(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-updated-array"
    title: ClassVar = "the array that is updated in place"
    what: ClassVar = (
        "The consumer is a dynamic-update-slice, and the producer computes the array of which it "
        "replaces a part."
    )
    why: ClassVar = "Presumably since the array must be in memory for a part of it to be replaced."

    def refuses(self, pair: TpuPair) -> bool:
        consumer = pair.consumer
        is_updated = consumer.opcode == "dynamic-update-slice" and pair.slots == (0,)
        return is_updated and not _allocates(pair.producer)


class IntoMovement(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-into-movement"
    title: ClassVar = "the consumer only moves data"
    what: ClassVar = (
        "The consumer is a broadcast, concatenate, copy, pad, reshape, reverse, slice or "
        "transpose, and the producer is no scalar constant. May be fused: a slice of a pad if "
        "something else than a pad reads the slice, a concatenate of a concatenate, and a copy "
        "that keeps the two minor-most dimensions of the layout if no convolution reads it."
    )
    why: ClassVar = (
        "Such an operation comes first in its kernel: operations behind it are fused with it, "
        "those before it are not. Presumably it reads whole tiles, of 8 by 128 elements or "
        "similar, from memory."
    )
    lever: ClassVar = (
        "move the data first and compute afterwards, or select with a mask instead of padding"
    )

    def refuses(self, pair: TpuPair) -> bool:
        consumer, producer = pair.consumer, pair.producer
        if consumer.opcode not in _MOVING or _is_scalar_constant(producer):
            return False
        match producer.opcode, consumer.opcode:
            case _, "copy":
                is_kept = keeps_minor_dimensions(consumer, 2)
                return not is_kept or is_read_by_products(consumer)
            case "pad", "slice":
                return is_only_padded(consumer)
            case ends:
                return ends != ("concatenate", "concatenate")


class Rearranged(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-rearranged"
    title: ClassVar = "the producer rearranges tiles"
    what: ClassVar = (
        "The producer is a copy that changes the minor-most dimension of the layout, a reshape "
        "that does more than add or remove dimensions of one element and is no bitcast, a reverse "
        "along one of the two minor-most dimensions, or a transpose."
    )
    why: ClassVar = (
        "Presumably since it changes which elements share a tile of 8 by 128 elements or similar."
    )
    lever: ClassVar = "keep the order and the sizes of the last two dimensions"

    def refuses(self, pair: TpuPair) -> bool:
        match pair.producer.opcode:
            case "copy":
                return not keeps_minor_dimensions(pair.producer, 1)
            case "reshape":
                return changes_dimensions(pair.producer)
            case "reverse":
                return reverses_within_tiles(pair.producer)
            case opcode:
                return opcode == "transpose"


class StridedSlice(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-strided-slice"
    title: ClassVar = "a slice with a stride within the tiles"
    what: ClassVar = (
        "The producer is a slice that takes every second element, or fewer, along one of the two "
        "minor-most dimensions of the layout. A slice without a stride is fused, wherever it "
        "begins, and so is one with a stride along another dimension."
    )
    why: ClassVar = (
        "Presumably since the two minor-most dimensions are stored in tiles of 8 by 128 elements "
        "or similar: such a slice picks elements out of each tile."
    )
    lever: ClassVar = (
        "give what is picked a dimension of its own: reshape n to n/2 by 2, and slice that"
    )

    def refuses(self, pair: TpuPair) -> bool:
        return has_stride_within_tiles(pair.producer)


class PaddedBetween(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-padded-between"
    title: ClassVar = "padding between elements"
    what: ClassVar = (
        "The producer is a pad that puts elements between those of its operand, as the gradient of "
        "a slice with a stride does, and an associative scan. A pad that only puts elements "
        "around them is fused."
    )
    why: ClassVar = Rearranged.why

    def refuses(self, pair: TpuPair) -> bool:
        return pads_between(pair.producer)


class SharedProduct(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-shared-product"
    title: ClassVar = "several kernels read the matrix product"
    what: ClassVar = (
        "The producer is a matrix product, which is a convolution for a TPU, or an elementwise "
        "operation behind one in its kernel. Several kernels read it, and that of the consumer "
        "computes another product: the consumer is one, or one follows elementwise, or the result "
        "of one joins. Or a single kernel reads it several times, which the result of another "
        "product joins."
    )
    why: ClassVar = (
        "Presumably since a product is not computed twice. What else reads it may be computed in "
        "its kernel, which has several results then, but not another product."
    )

    def refuses(self, pair: TpuPair) -> bool:
        producer, consumer, kernels = pair.producer, pair.consumer, pair.kernels
        if consumer.opcode == "reduce" or not kernels.is_read_again(producer):
            return False
        is_beside, is_behind = kernels.other_products(producer, consumer)
        if kernels.converge(producer):
            return is_beside and not is_behind
        return is_beside or is_behind


class ReducedProduct(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-reduced-product"
    title: ClassVar = "the consumer also reads the product's reduction"
    what: ClassVar = (
        "The producer is a matrix product, which is a convolution for a TPU, or an elementwise "
        "operation behind one in its kernel. The consumer is elementwise, and also reads what is "
        "computed from the producer by other than elementwise operations, such as its maximum or "
        "mean: as in a softmax or a normalization of a product."
    )
    why: ClassVar = (
        "The reduction needs the whole product first, which is not computed twice: its result is "
        "in memory meanwhile."
    )

    def refuses(self, pair: TpuPair) -> bool:
        producer, consumer, kernels = pair.producer, pair.consumer, pair.kernels
        return (
            is_one_elementwise(consumer)
            and consumer.shape.is_array
            and kernels.is_read_again(producer)
            and not kernels.converge(producer)
            and waits(consumer, producer)
        )


TPU_RULES: tuple[TpuRule, ...] = (
    Scalar(),
    Start(),
    IntoGather(),
    GatherResult(),
    IntoScatter(),
    ScatterResult(),
    ReduceResult(),
    TiledWindow(),
    UpdateResult(),
    UpdatedArray(),
    IntoMovement(),
    Rearranged(),
    StridedSlice(),
    PaddedBetween(),
    SharedProduct(),
    ReducedProduct(),
)


def refusing(pair: TpuPair) -> TpuRule | type[Cause] | None:
    """Return why the two are kept apart, the first reason that applies; None if none does."""
    for end in (pair.consumer, pair.producer):
        cause = BY_OPCODE.get(end.opcode)
        if cause is not None and end.opcode not in _FUSED_ON_TPU and not _allocates(end):
            return cause
    return next((rule for rule in TPU_RULES if rule.refuses(pair)), None)


def _is_scalar_constant(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and not instruction.shape.rank


def _allocates(instruction: Instruction) -> bool:
    """Return whether it is a call for memory that nothing is in yet."""
    return instruction.opcode == "custom-call" and not instruction.operands
