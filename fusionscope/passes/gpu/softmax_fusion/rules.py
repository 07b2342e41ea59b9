"""The rules for diamonds, which become Triton kernels: a value, its reduction along rows, and their
common user.

A normalization consists of such diamonds: a softmax has one with the maximum of each row and one
with the sum. The search for a diamond starts at its end, the root. Source of all:
xla/backends/gpu/transforms/softmax_rewriter_triton.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import ClassVar, NamedTuple

from fusionscope.gpu.cost.duration import Duration, written
from fusionscope.gpu.state import GpuState
from fusionscope.gpu.tiling.computation import TiledBody
from fusionscope.gpu.tiling.search import Untileable
from fusionscope.gpu.triton import Triton
from fusionscope.graph.layouts import has_default_layout, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.search import post_order
from fusionscope.passes.rule import Decision, Rule, RuleBook


class Span(NamedTuple):
    """What would be one kernel: all that ``root`` depends on, down from ``producer``, the value
    that it reads from outside.
    """

    producer: MutableInstruction
    root: MutableInstruction

    @property
    def inside(self) -> list[tuple[MutableInstruction, MutableInstruction]]:
        """The producers and consumers that would be in one kernel."""
        return [
            (operand, instruction)
            for instruction in self.body()
            if instruction is not self.producer
            for operand in dict.fromkeys(instruction.operands)
            if operand is not self.producer and operand.opcode != "parameter"
        ]

    def body(self) -> list[MutableInstruction]:
        """The producer and all instructions that the root depends on, operands first, parameters
        included.

        Source: MakeFusionForDiamond.
        """
        inside = post_order(
            [self.root],
            lambda value: [operand for operand in value.operands if operand is not self.producer],
        )
        return [self.producer, *inside]


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths upwards through trivial instructions, which join any kernel of rows. If they ``keep
    rows``, a bitcast is trivial only if it keeps the last dimension, or has lost it to a reduction.
    """

    triton: Triton
    keep_rows: bool = False

    def up(self, start: MutableInstruction, opcode: str | None = None) -> list[MutableInstruction]:
        """Return ``start`` and what is above it, up to an instruction that is not trivial or has
        this ``opcode``. Source: TrivialEdge.
        """
        path = [start]
        while path[-1].opcode != opcode and self.is_trivial(path[-1]):
            path.append(self.above(path[-1]))
        return path

    def above(self, trivial: MutableInstruction) -> MutableInstruction:
        """Return the operand that is not repeated. Source: ChooseOperandForFusionProcessing."""
        return trivial.operands[-1 if _is_repeated(trivial.operands[0]) else 0]

    def is_trivial(self, instruction: MutableInstruction, users: int = 1) -> bool:
        """Return whether it is trivial and has at most so many ``users``.

        Source: IsTriviallyFusible.
        """
        operands = instruction.operands
        if len(instruction.users) > users or not has_default_layout(instruction.shape):
            return False
        if instruction.opcode == "bitcast":
            return not self.keep_rows or self._keeps_rows(instruction)
        if not is_elementwise(instruction) or not 1 <= len(operands) <= 2:
            return False
        first, last = operands[0], operands[-1]
        if first is not last and _is_repeated(first) == _is_repeated(last):
            return False
        return self.triton.unsupported(instruction) is None

    def _keeps_rows(self, bitcast: MutableInstruction) -> bool:
        """Source: BitcastIsTilingNoop."""
        source = bitcast.operands[0]
        extents = sizes(bitcast.shape)
        if prod(extents) == 1:
            return True
        if not has_default_layout(source.shape):
            return False
        end = Paths(self.triton).up(source, "reduce")[-1]
        return end.opcode == "reduce" or extents[-1] == sizes(source.shape)[-1]


class Diamond:
    """The parts of a diamond that ends in ``root``, each found on demand.

    A path leads from an instruction up through trivial ones. It ends with the first that is not
    trivial, or that is the one searched for.
    """

    def __init__(self, root: MutableInstruction, paths: Paths) -> None:
        self.root = root
        self._paths = paths

    @cached_property
    def to_broadcast(self) -> list[MutableInstruction]:
        return self._paths.up(self.root.operands[1], "broadcast")

    @property
    def broadcast(self) -> MutableInstruction:
        """The reduce, or the instruction in its place."""
        return self.to_broadcast[-1]

    @cached_property
    def to_reduce(self) -> list[MutableInstruction]:
        return self._paths.up(self.broadcast.operands[0], "reduce")

    @property
    def reduce(self) -> MutableInstruction:
        """Or what stands where it should."""
        return self.to_reduce[-1]

    @property
    def row_length(self) -> int | None:
        return self.reduce.operands[0].shape.dimensions[-1]

    @cached_property
    def producer(self) -> MutableInstruction:
        """The value that the diamond reads from outside."""
        return self._paths.up(self.reduce.operands[0])[-1]

    @property
    def is_closed(self) -> bool:
        """Whether the first operand of the root is also computed from the producer.

        Source: IsTriviallyConnectedProducerOf.
        """
        end = self.root.operands[0]
        while end is not self.producer:
            end = self._paths.up(end, self.producer.opcode)[-1]
            if end is not self.producer:
                if end.opcode != self.producer.opcode or not self._paths.is_trivial(end):
                    return False
                end = end.operands[0]
        return True

    @property
    def is_binary(self) -> bool:
        return is_elementwise(self.root) and len(self.root.operands) == 2

    @property
    def way(self) -> list[tuple[MutableInstruction, MutableInstruction]]:
        """Producers and consumers from the reduce to the root, or from the instruction that
        interrupts the path; the root with itself if no path begins.
        """
        if not self.is_binary:
            return [(self.root, self.root)]
        path = [self.root, *self.to_broadcast]
        if self.broadcast.opcode == "broadcast":
            path += self.to_reduce
        return [(above, below) for below, above in pairwise(path)][::-1]

    @property
    def span(self) -> Span:
        return Span(self.producer, self.root)


def _is_repeated(instruction: MutableInstruction) -> bool:
    """Source: xla/hlo/utils/hlo_query.cc, IsBroadcastOfScalarConstant, IsBroadcastOfParameter."""
    if instruction.opcode != "broadcast":
        return False
    source = instruction.operands[0]
    return source.opcode == "parameter" or (source.opcode == "constant" and not source.shape.rank)


class DiamondRule(Rule):
    """A rule about a diamond. A rule that ``is_part`` defines the diamond, and applies whether or
    not a book has it.
    """

    __slots__ = ()
    is_part: ClassVar[bool] = False

    @abstractmethod
    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the diamond."""


class RootBinary(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-root-binary"
    is_part: ClassVar = True
    message: ClassVar = "Root is not elementwise binary."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        return None if diamond.is_binary else self.refuse(opcode=diamond.root.opcode)


class RootTriton(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-root-triton"
    message: ClassVar = "Root is not supported for Triton instruction."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        if state.triton.unsupported(diamond.root) is None:
            return None
        return self.refuse(type=diamond.root.operands[-1].shape.element_type)


class EdgeToBroadcast(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-edge-broadcast"
    is_part: ClassVar = True
    message: ClassVar = "Could not find a trivial connection from root to a broadcast."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        end = diamond.broadcast
        return None if end.opcode == "broadcast" else self.refuse(found=end.name)


class EdgeToReduce(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-edge-reduce"
    is_part: ClassVar = True
    message: ClassVar = "Could not find a trivial connection from matched broadcast to a reduction."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        end = diamond.reduce
        return None if end.opcode == "reduce" else self.refuse(found=end.name)


class Layouts(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-layout"
    message: ClassVar = "Broadcast or reduce have non-default layouts."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        for end in (diamond.broadcast, diamond.reduce):
            if not has_default_layout(end.shape):
                return self.refuse(shape=str(end.shape))
        return None


class RowReduction(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-reduce-ok"
    message: ClassVar = (
        "The reductions in the diamond must reduce 1 dimension and that dimension must be the last "
        "dimension of the operand."
    )
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        reduce = diamond.reduce
        unsupported = state.triton.unsupported(reduce)
        if unsupported is not None:
            return self.refuse(unsupported)
        source, identity = reduce.operands
        if reduce.attribute("dimensions") != (source.shape.rank - 1,):
            return self.refuse(dimensions=reduce.attributes["dimensions"])
        if identity.opcode == "constant" or (
            identity.opcode == "convert"
            and identity.operands[0].opcode == "constant"
            and state.triton.unsupported(identity) is None
        ):
            return None
        return self.refuse(
            "Reduction identity is not a constant or a supported convert of a constant.",
            identity=identity.name,
        )


class OneUse(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-one-use"
    message: ClassVar = "More than one use of broadcast or reduce."

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        for end in (diamond.broadcast, diamond.reduce):
            if len(end.users) != 1:
                return self.refuse(of=end.name, users=len(end.users))
        return None


class BroadcastDimension(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-bcast-dim"
    message: ClassVar = "Broadcast is not along the reduction dimension."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        broadcast = diamond.broadcast
        if broadcast.shape.rank - 1 not in broadcast.attribute("dimensions"):
            return None
        return self.refuse(dimensions=broadcast.attributes["dimensions"])


class ProducerLayout(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-producer-layout"
    message: ClassVar = "Producer has non-default layout."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        shape = diamond.producer.shape
        return None if has_default_layout(shape) else self.refuse(shape=str(shape))


class Connected(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-connected"
    is_part: ClassVar = True
    message: ClassVar = "Producer is not trivially connected."
    is_legality: ClassVar = True

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        return None if diamond.is_closed else self.refuse(producer=diamond.producer.name)


class RootProducer(DiamondRule):
    __slots__ = ()
    id: ClassVar = "sm-root-producer"
    message: ClassVar = "Unsupported root-producer connection."

    def check(self, diamond: Diamond, state: GpuState) -> Decision | None:
        normalized = diamond.root.operands[0]
        if normalized is diamond.producer or len(normalized.users) == 1:
            return None
        return self.refuse(of=normalized.name, users=len(normalized.users))


class DiamondFusionRule(Rule):
    """A rule about the fusion that a diamond would become."""

    __slots__ = ()


class Tileable(DiamondFusionRule):
    __slots__ = ()
    id: ClassVar = "sm-tile"
    message: ClassVar = "Cannot tile the diamond pattern"
    is_legality: ClassVar = True

    def check(self, tiled: TiledBody) -> Decision | None:
        """Return the decision on the fusion ``tiled``, whose tiles have no size yet."""
        return self.refuse() if tiled.problem else None


class TilingFound(DiamondFusionRule):
    __slots__ = ()
    id: ClassVar = "sm-tiling-search"
    message: ClassVar = "SymbolicTileAnalysis failed: "
    is_legality: ClassVar = True

    def refuse_because(self, problem: Untileable) -> Decision:
        return self.refuse(self.message + problem.message)


class FasterUnfused(DiamondFusionRule):
    __slots__ = ()
    id: ClassVar = "sm-cost"
    message: ClassVar = (
        "Run time estimate for without applying the custom normalization rewrite is faster."
    )

    def check(self, fused: Duration, unfused: Duration) -> Decision | None:
        if unfused >= fused:
            return None
        return self.refuse(unfused=written(unfused), fused=written(fused))


GPU_SOFTMAX: RuleBook[Rule] = RuleBook(
    "gpu-softmax",
    "triton-softmax-rewriter",
    "gpu",
    (
        RootBinary(),
        RootTriton(),
        EdgeToBroadcast(),
        EdgeToReduce(),
        Layouts(),
        RowReduction(),
        OneUse(),
        BroadcastDimension(),
        ProducerLayout(),
        Connected(),
        RootProducer(),
        Tileable(),
        TilingFound(),
        FasterUnfused(),
    ),
)

# Diamonds in a row become one kernel, with what is trivial before and after them, and rows are
# kept.
GPU_SOFTMAX_CHAINS = GPU_SOFTMAX.renamed("gpu-softmax-chains")
