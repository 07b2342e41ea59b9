"""The rules of matrix multiplication fusion for Triton without xla_gpu_experimental_gemm_fusion_v2,
the default up to jaxlib 0.11.

Source of all: xla/service/gpu/triton_tiling_propagation.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fusionscope.dump.device import CudaCapability, Device
from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.passes.gpu.gemm_fusion.dimension_order import (
    FOLLOWING,
    DimensionOrder,
    DotSide,
    Following,
    Propagated,
    is_known_elementwise,
    propagate,
)
from fusionscope.passes.gpu.gemm_fusion.rules import (
    PASS_NAME,
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
)
from fusionscope.passes.rule import Decision, Rule, RuleBook

_TYPES = frozenset({"f16", "f32", "bf16", "f8e5m2", "pred", "s8", "s16", "s32"})
_PURE = frozenset({"bitcast", "dot", "parameter", "reshape"})
TRITON_ALGORITHMS = frozenset(
    "dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_tf32_tf32_f32 "
    "dot_tf32_tf32_f32_x3 dot_f32_f32_f32".split()
)
# What the extents of a library's operands are a multiple of, from A100 on.
_LIBRARY_MULTIPLES = {"s8": 4, "f16": 8, "bf16": 8}
_MOVES = frozenset({"broadcast", "concatenate", "reshape", "slice", "transpose"})


@dataclass(frozen=True, slots=True)
class OrderedCandidate(Candidate):
    """A candidate with ``order``, the positions of the dot's dimensions in its result or, for a
    user of the fusion, in its operand.
    """

    order: DimensionOrder
    side: DotSide

    def propagated(self) -> Propagated | str:
        """Return the positions on its other side, or the compiler's message."""
        is_operand = self.neighbour is Neighbour.OPERAND
        return propagate(self.original, self.order, self.side, up=is_operand)

    def takes_broadcast(self, broadcast: MutableInstruction) -> bool:
        propagated = self.propagated()
        if isinstance(propagated, str):
            return False
        order = propagated.orders[broadcast]
        return not isinstance(propagate(broadcast, order, self.side, up=True), str)


@dataclass(frozen=True, slots=True)
class SideParameters(Rule):
    id: ClassVar = "gf-side-parameters"

    limit: int = 4


class OrderedOpcode(AroundRule[OrderedCandidate]):
    __slots__ = ()
    id: ClassVar = "gf-opcode"
    is_legality: ClassVar = True

    def check(self, candidate: OrderedCandidate, state: GemmState) -> Decision | None:
        opcode = candidate.instruction.opcode
        if opcode == "dynamic-slice" and candidate.neighbour is Neighbour.OPERAND:
            return self.refuse("Not fusing dynamic slice: ")
        if opcode in ("get-tuple-element", "tuple"):
            return self.refuse("Unsupported instruction.")
        if opcode in ("all-reduce", "reduce"):
            return self.refuse("Reductions are not fused yet.")
        return self.refuse("Pads are not fused yet.") if opcode == "pad" else None


class OrderedPower(GemmPower):
    __slots__ = ()
    neighbours: ClassVar[tuple[Neighbour, ...]] = (Neighbour.OPERAND, Neighbour.USER)
    message: ClassVar = (
        "Not fusing power with multiple users because it may result in expensive op duplication."
    )


class OrderedSupport(AroundRule[OrderedCandidate]):
    __slots__ = ()
    id: ClassVar = "gf-operation"
    is_legality: ClassVar = True

    def check(self, candidate: OrderedCandidate, state: GemmState) -> Decision | None:
        problem = self._problem(candidate.instruction, state.device)
        return None if problem is None else self.refuse(problem)

    def _problem(self, instruction: MutableInstruction, device: Device) -> str | None:
        opcode, shape = instruction.opcode, instruction.shape
        if is_elementwise(instruction):
            if not _is_known(shape.element_type, device):
                return "Unsupported output data type."
            if not all(
                (opcode == "convert" and operand.shape.element_type == "s4")
                or _is_known(operand.shape.element_type, device)
                for operand in instruction.operands
            ):
                return "Unsupported input data type."
            if opcode == "constant" or is_known_elementwise(instruction):
                return None
            return "Unsupported elementwise operation."
        if opcode == "bitcast":
            same = shape.element_type == instruction.operands[0].shape.element_type
            return None if same else "Bitcast-convert is not supported"
        if opcode == "dynamic-slice":
            return _problem_of_dynamic_slice(instruction)
        return None if opcode == "dot" or opcode in _MOVES else "Unsupported opcode."


def _problem_of_dynamic_slice(instruction: MutableInstruction) -> str | None:
    """Source: IsTritonSupportedDynamicSlice."""
    source, *starts = instruction.operands
    if any(start.shape.element_type not in ("s8", "s16", "s32") for start in starts):
        return "Dynamic slice is only supported with S8, S16, or S32 indices."
    extents, slice_extents = sizes(source.shape), sizes(instruction.shape)
    if any(slice_extents[place] != extents[place] for place in minor_to_major(source.shape)[:-1]):
        return "Unsupported dynamic slice on non-major-most dimension."
    return None


def _is_known(element_type: str, device: Device) -> bool:
    if element_type == "f8e4m3fn":
        capability = device.capability
        return isinstance(capability, CudaCapability) and capability.major >= 9
    return element_type in _TYPES


@dataclass(frozen=True, slots=True)
class OrderedDimensions(AroundRule[OrderedCandidate]):
    id: ClassVar = "gf-dimensions"
    is_legality: ClassVar = True

    following: Following = FOLLOWING

    def check(self, candidate: OrderedCandidate, state: GemmState) -> Decision | None:
        propagated = candidate.propagated()
        return self.refuse(propagated) if isinstance(propagated, str) else None


class LoneDot(Rule):
    """A fusion of nothing but a dot is left to the library, unless an algorithm asks for Triton.

    Source: xla/service/gpu/transforms/gemm_fusion.cc, CreateDotFusion and HandleDot, without
    xla_gpu_triton_gemm_any.
    """

    __slots__ = ()
    id: ClassVar = "gf-lone"
    message: ClassVar = "Pure Matmul"

    def check(
        self, dot: MutableInstruction, fused: MutableComputation, device: Device
    ) -> Decision | None:
        if (
            dot.attributes.get("algorithm") in TRITON_ALGORITHMS
            or any(instruction.opcode not in _PURE for instruction in fused.instructions)
            or _library_needs_padding(dot, device)
        ):
            return None
        return self.refuse()


def _library_needs_padding(dot: MutableInstruction, device: Device) -> bool:
    """Source: xla/service/gpu/cublas_padding_requirements.cc, CublasRequiresPadding."""
    batches = len(dot.attribute("lhs_batch_dims") or ())
    return isinstance(device.capability, CudaCapability) and any(
        extent % _LIBRARY_MULTIPLES.get(operand.shape.element_type, 1)
        for operand in dot.operands
        for extent in sizes(operand.shape)[batches:]
    )


GPU_GEMM_V1: RuleBook[Rule] = RuleBook(
    "gpu-gemm-v1",
    PASS_NAME,
    "gpu",
    (
        GemmSize(),
        GemmSupport(),
        SideParameters(),
        OrderedOpcode(),
        OrderedPower(),
        OrderedSupport(),
        OrderedDimensions(),
        GemmInputWorth(),
        GemmOtherInputs(),
        GemmOutputWorth(),
    ),
)
