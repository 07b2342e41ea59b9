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

    @abstractmethod
    def refuses(self, pair: TpuPair) -> bool:
        """Return whether the compiler keeps the two apart."""


class Scalar(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-scalar"

    def refuses(self, pair: TpuPair) -> bool:
        consumer = pair.consumer
        if not all(
            is_effective_scalar(instruction.shape) for instruction in (pair.producer, consumer)
        ):
            return False
        if not consumer.shape.rank:
            return consumer.opcode != "reduce"
        return is_one_elementwise(consumer) and consumer.computation.is_entry


class Start(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-start"

    def refuses(self, pair: TpuPair) -> bool:
        producer = pair.producer
        is_scalar = producer.shape.is_array and not producer.shape.rank
        return pair.consumer.opcode in _PARTS and is_scalar and producer.opcode != "constant"


class IntoGather(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-into-gather"

    def refuses(self, pair: TpuPair) -> bool:
        return is_gather(pair.consumer)


class GatherResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-gather-result"

    def refuses(self, pair: TpuPair) -> bool:
        if not is_gather(pair.producer) or pair.consumer.opcode in PRODUCTS:
            return False
        return not ends_in_scatter(pair.consumer)


class IntoScatter(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-into-scatter"

    def refuses(self, pair: TpuPair) -> bool:
        if not is_scatter(pair.consumer) or 0 in pair.slots:
            return False
        read = pair.consumer.operands[pair.slots[-1]].shape
        return 1 in pair.slots or read.rank <= 1


class ScatterResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-scatter-result"

    def refuses(self, pair: TpuPair) -> bool:
        return is_scatter(pair.producer)


class ReduceResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-reduce-result"

    def refuses(self, pair: TpuPair) -> bool:
        return pair.producer.opcode == "reduce"


class TiledWindow(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-window"

    def refuses(self, pair: TpuPair) -> bool:
        if pair.producer.opcode == "constant":
            return False  # a reduction begins with it
        return any(map(has_window_within_tiles, (pair.producer, pair.consumer)))


class UpdateResult(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-update-result"

    def refuses(self, pair: TpuPair) -> bool:
        return pair.producer.opcode == "dynamic-update-slice"


class UpdatedArray(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-updated-array"

    def refuses(self, pair: TpuPair) -> bool:
        consumer = pair.consumer
        is_updated = consumer.opcode == "dynamic-update-slice" and pair.slots == (0,)
        return is_updated and not _allocates(pair.producer)


class IntoMovement(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-into-movement"

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

    def refuses(self, pair: TpuPair) -> bool:
        return has_stride_within_tiles(pair.producer)


class PaddedBetween(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-padded-between"

    def refuses(self, pair: TpuPair) -> bool:
        return pads_between(pair.producer)


class SharedProduct(TpuRule):
    __slots__ = ()
    id: ClassVar = "tpu-shared-product"

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

    def refuses(self, pair: TpuPair) -> bool:
        producer, consumer, kernels = pair.producer, pair.consumer, pair.kernels
        return (
            is_one_elementwise(consumer)
            and consumer.shape.is_array
            and kernels.is_read_again(producer)
            and kernels.product[producer].shape.rank == 2  # others may keep a row in their kernel
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
