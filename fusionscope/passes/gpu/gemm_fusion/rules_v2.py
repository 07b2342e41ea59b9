"""The rules of matrix multiplication fusion for Triton with xla_gpu_experimental_gemm_fusion_v2,
the default from jaxlib 0.12 on.

The rules of jaxlib 0.12 go beyond the available sources. The additions were derived from that
compiler's decisions and log. Source of all: xla/backends/gpu/transforms/gemm_fusion.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.coalescing import transposes_minor_dimension
from fusionscope.gpu.triton_support import unsupported
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise, is_fusible
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_fusion.rules import (
    PASS_NAME,
    VIEWS,
    AroundRule,
    Candidate,
    GemmInputWorth,
    GemmOtherInputs,
    GemmOutputWorth,
    GemmPower,
    GemmSize,
    GemmState,
    GemmSupport,
    Neighbour,
    added_parameters,
    reads_broadcast,
)
from fusionscope.passes.gpu.gemm_fusion.shape_tracker import ShapeTracker
from fusionscope.passes.gpu.gemm_fusion.tiling import TiledDot, blocks_of
from fusionscope.passes.rule import Decision, Rule, RuleBook


@dataclass(frozen=True, slots=True)
class Tracked:
    """How the elements of an instruction come to be those of an operand of the dot, or of what is
    computed into it: ``contracting``, ``batch`` and ``free`` are the dimensions of the tracker's
    result that are these for the dot. ``slot`` is the place of the operand."""

    tracker: ShapeTracker
    slot: int
    contracting: tuple[int, ...]
    batch: tuple[int, ...]
    free: tuple[int, ...]

    @staticmethod
    def of_operand(dot: MutableInstruction, slot: int) -> Tracked:
        side = ("lhs", "rhs")[slot]
        shape = dot.operands[slot].shape
        contracting: tuple[int, ...] = dot.attribute(f"{side}_contracting_dims")
        batch: tuple[int, ...] = dot.attribute(f"{side}_batch_dims") or ()
        free = tuple(
            place for place in range(shape.rank) if place not in contracting and place not in batch
        )
        return Tracked(ShapeTracker.unchanged(shape), slot, contracting, batch, free)

    def through(self, user: MutableInstruction, operand: MutableInstruction) -> Tracked | None:
        """Return the mapping for ``operand`` of ``user``, or None if it is unknown. This one is
        that of ``user``.

        Source: ComputeCandidateTracker; broadcasts since jaxlib 0.12.
        """
        if is_elementwise(user):
            tracker = self.tracker.with_element_type(operand.shape.element_type)
            return replace(self, tracker=tracker)
        found = self.tracker.after(user)
        if found is not None:
            return replace(self, tracker=found)
        if user.opcode == "broadcast":
            return self._before_broadcast(user)
        if user.opcode in ("concatenate", "slice") and self.tracker.is_unchanged:
            return replace(self, tracker=ShapeTracker.unchanged(operand.shape))
        return None

    def _before_broadcast(self, broadcast: MutableInstruction) -> Tracked | None:
        """Only the dimensions that the operand has are looked at from here on."""
        kept: tuple[int, ...] = broadcast.attribute("dimensions")
        inverted = self.tracker.inverted()
        operand_sections: list[tuple[int, ...]] = []
        for dimensions in (self.contracting, self.batch, self.free):
            mapped = inverted.mapped(dimensions)
            if mapped is None:
                return None
            operand_sections.append(
                tuple(kept.index(dimension) for dimension in mapped if dimension in kept)
            )
        tracker = ShapeTracker.unchanged(broadcast.operands[0].shape)
        return Tracked(tracker, self.slot, *operand_sections)


@dataclass(frozen=True, slots=True)
class TileCandidate(Candidate):
    """A candidate in the search space around a dot. ``before`` maps an operand to the dot,
    ``after`` the dot to its user; None if unknown.
    """

    fusion: MutableInstruction
    before: Tracked | None = None
    after: ShapeTracker | None = None

    @property
    def dot(self) -> MutableInstruction:
        """The dot in the fusion."""
        return next(
            instruction
            for instruction in self.fusion.fused.instructions
            if instruction.opcode == "dot"
        )


class SpaceRule(Rule):
    """A rule about the possible contents of any dot's fusion."""

    __slots__ = ()

    @abstractmethod
    def check(self, instruction: MutableInstruction, state: GemmState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the instruction."""


class GemmFusible(SpaceRule):
    __slots__ = ()
    id: ClassVar = "gf-fusible"
    is_legality: ClassVar = True

    def check(self, instruction: MutableInstruction, state: GemmState) -> Decision | None:
        if is_fusible(instruction) and not instruction.called and instruction.opcode != "dot":
            return None
        return self.refuse(opcode=instruction.opcode)


class GemmTriton(SpaceRule):
    __slots__ = ()
    id: ClassVar = "gf-triton-support"
    is_legality: ClassVar = True

    def check(self, instruction: MutableInstruction, state: GemmState) -> Decision | None:
        problem = unsupported(instruction, state.device, state.triton)
        return None if problem is None else self.refuse(problem)


@dataclass(frozen=True, slots=True)
class GemmParameters(AroundRule[TileCandidate]):
    id: ClassVar = "gf-parameters"
    neighbours: ClassVar = (Neighbour.OPERAND,)
    message: ClassVar = "Too many parameters."

    limit: int = 8

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        count = len(candidate.fusion.operands) + added_parameters(candidate.instruction)
        return self.refuse(parameters=count, limit=self.limit) if count > self.limit else None


@dataclass(frozen=True, slots=True)
class GemmConcatenate(AroundRule[TileCandidate]):
    id: ClassVar = "gf-concatenate"

    multiple: int = 64

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        if candidate.original.opcode != "concatenate":
            return None
        if candidate.neighbour is Neighbour.USER:
            return self.refuse("Not fusing concatenate into epilogue.")
        place = candidate.instruction.attribute("dimensions")[0]
        before = candidate.before
        if before is None:
            return self.refuse("No shape tracker found for concatenate.")
        mapped = before.tracker.mapped((place,))
        if mapped is None or len(mapped) != 1:
            return self.refuse("Failed to map concat dimension to dot operand dimension.")
        if mapped[0] in before.contracting:
            return self.refuse("Not fusing concatenate along contracting dimension.")
        for operand in candidate.instruction.operands:
            extent = sizes(operand.shape)[place]
            if extent % max(self.multiple, 1):
                message = "At least one operand of concatenation cannot be perfectly tiled."
                return self.refuse(message, elements=extent, multiple=self.multiple)
        return None


@dataclass(frozen=True, slots=True)
class GemmTranspose(AroundRule[TileCandidate]):
    id: ClassVar = "gf-transpose"
    neighbours: ClassVar = (Neighbour.OPERAND,)

    bits: int = 128

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        if candidate.original.opcode != "transpose":
            return None
        before = candidate.before
        if before is None:
            return self.refuse("No shape tracker found for transpose.")
        tracker = before.tracker.after(candidate.instruction)
        if tracker is None:
            return self.refuse("Failed to prepend transpose to tracker.")
        inverted = tracker.inverted()
        if not inverted.maps_to_one_stride(before.contracting):
            return self.refuse("Contracting dimension has non-contiguous section.")
        if not inverted.maps_to_one_section(before.batch):
            return self.refuse("Batch dimension splits other dimensions.")
        if (
            before.slot == 1
            and not inverted.maps_to_one_stride(before.free)
            and not self._reads_vectors(
                candidate.instruction.operands[0].shape, inverted.mapped(before.free)
            )
        ):
            return self.refuse("Non-contracting RHS dimension has non-contiguous section.")
        return None

    def _reads_vectors(self, shape: Shape, dimensions: list[int] | None) -> bool:
        last = shape.rank - 1
        size = sizes(shape)[last] * shape.bits
        return dimensions is not None and last in dimensions and size % max(self.bits, 1) == 0


class GemmTransposeBefore(AroundRule[TileCandidate]):
    __slots__ = ()
    id: ClassVar = "gf-transpose-before"
    neighbours: ClassVar = (Neighbour.OPERAND,)
    message: ClassVar = (
        "Transpose within a non-contracting dimension can be fused into its producer instead."
    )

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        before = candidate.before
        if candidate.original.opcode != "transpose" or before is None:
            return None
        tracker = before.tracker.after(candidate.instruction)
        if (
            tracker is None
            or tracker.inverted().maps_to_one_stride(before.free)
            or transposes_minor_dimension(candidate.instruction)
        ):
            return None
        producer = candidate.original.operands[0]
        while producer.opcode in VIEWS and len(producer.users) == 1:
            producer = producer.operands[0]
        if (
            is_elementwise(producer)
            and len(producer.users) == 1
            and not reads_broadcast(producer)
            and not GemmInputWorth().is_worth(producer)
        ):
            return self.refuse(producer=producer.name)
        return None


class GemmTransposeBehind(AroundRule[TileCandidate]):
    __slots__ = ()
    id: ClassVar = "gf-transpose-behind"
    neighbours: ClassVar = (Neighbour.USER,)
    message: ClassVar = "Dimension has non-contiguous section."

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        if candidate.original.opcode != "transpose":
            return None
        if candidate.after is None:
            return self.refuse("No shape tracker found for transpose user.")
        tracker = candidate.after.then(candidate.instruction)
        if tracker is None:
            return self.refuse("Failed to append transpose to tracker.")
        dimensions = [(place,) for place in range(len(tracker.source))]
        if not all(map(tracker.maps_to_one_section, dimensions)):
            return self.refuse()
        batch = len(candidate.dot.attribute("lhs_batch_dims") or ())
        if (
            not all(map(tracker.maps_to_one_stride, dimensions[batch:]))
            and not transposes_minor_dimension(candidate.instruction)
            and _fits_behind(candidate.original)
        ):
            return self.refuse(
                "Transpose within a non-contracting dimension can be fused into its user instead."
            )
        return None


def _fits_behind(transpose: MutableInstruction) -> bool:
    reader = transpose
    while len(reader.users) == 1:
        reader = next(iter(reader.users))
        if reader.opcode not in VIEWS:
            return reader.opcode == "concatenate" or is_elementwise(reader)
    return False


class GemmTiling(AroundRule[TileCandidate]):
    __slots__ = ()
    id: ClassVar = "gf-tiling"
    message: ClassVar = (
        "Fusion is not tileable with experimental tiling: Unsupported reshape (kGeneric)."
    )
    is_legality: ClassVar = True

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        return None if _tiled(candidate).is_tileable else self.refuse()


class GemmBlocks(AroundRule[TileCandidate]):
    __slots__ = ()
    id: ClassVar = "gf-blocks"
    message: ClassVar = "None of the default Triton configs can be used to tile the fusion."
    is_legality: ClassVar = True

    def check(self, candidate: TileCandidate, state: GemmState) -> Decision | None:
        blocks = blocks_of(state.device)
        if blocks is None or _tiled(candidate).fits_any(blocks):
            return None
        return self.refuse()


def _tiled(candidate: TileCandidate) -> TiledDot:
    ends = (candidate.instruction, candidate.fusion)
    if candidate.neighbour is Neighbour.USER:
        ends = ends[::-1]
    return TiledDot(FusionBody(*ends), candidate.dot)


GPU_GEMM_V2: RuleBook[Rule] = RuleBook(
    "gpu-gemm-v2",
    PASS_NAME,
    "gpu",
    (
        GemmSize(),
        GemmSupport(),
        GemmFusible(),
        GemmTriton(),
        GemmParameters(),
        GemmPower(),
        GemmConcatenate(),
        GemmTranspose(),
        GemmTransposeBefore(),
        GemmTransposeBehind(),
        GemmInputWorth(),
        GemmOtherInputs(),
        GemmOutputWorth(),
        GemmTiling(),
        GemmBlocks(),
    ),
)
