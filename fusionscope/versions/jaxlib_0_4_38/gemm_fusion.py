"""The rules of jaxlib 0.4.38 for matrix multiplications: fewer go to Triton, and none alone.

Source: xla/service/gpu/fusions/triton/triton_support_legacy.cc and
xla/service/gpu/triton_tiling_propagation.cc of December 2024.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.dump.device import CudaCapability, Device
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.gemm_fusion.rules import (
    GemmInputWorth,
    GemmState,
    GemmSupport,
    added_bytes,
)
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import (
    TRITON_ALGORITHMS,
    LoneDot,
)
from fusionscope.passes.rule import Decision
from fusionscope.versions.jaxlib_0_6_2.gpu import GPU_GEMM_V1_0_6_2

_GIVEN = frozenset({"constant", "parameter"})
_RESULTS = frozenset({"bf16", "f16", "f32"})
_OPERANDS = _RESULTS | {"pred", "s8", "s16", "s32"}
_EIGHT_BITS = {"f8e5m2": 8, "f8e4m3fn": 9}  # the least compute capability


class EarlierDots(GemmSupport):
    """No result of integers or f64, nor several batch dimensions. Source: CanTritonHandleGEMM."""

    __slots__ = ()

    def check(self, dot: MutableInstruction, state: GemmState) -> Decision | None:
        problem = _problem(dot, state.device)
        return None if problem is None else self.refuse(problem)


def _problem(dot: MutableInstruction, device: Device) -> str | None:
    batch = dot.attribute("lhs_batch_dims") or ()
    for side, operand in zip(("lhs", "rhs"), dot.operands, strict=True):
        if len(batch) + len(dot.attribute(f"{side}_contracting_dims")) == operand.shape.rank:
            return "No non-contracting dimensions."
    algorithm = dot.attributes.get("algorithm")
    if algorithm is None:
        if "high" in dot.attributes.get("operand_precision", ""):
            return (
                "Having non-default operand precisions or TensorFloat-32 disabled for Dot op with "
                "unset algorithm."
            )
    elif algorithm not in TRITON_ALGORITHMS:
        return f"Unsupported algorithm on the current device(s): ALG_{algorithm.upper()}"
    if not _is_in(_RESULTS, dot, device):
        return "Unsupported output data type for Dot op."
    if not all(_is_in(_OPERANDS, operand, device) for operand in dot.operands):
        return "Unsupported input data type for Dot op."
    return "Multiple batch dimensions." if len(batch) > 1 else None


def _is_in(types: frozenset[str], instruction: MutableInstruction, device: Device) -> bool:
    element_type = instruction.shape.element_type
    capability = device.capability
    least = _EIGHT_BITS.get(element_type)
    if least is None or not isinstance(capability, CudaCapability):
        return element_type in types
    return capability.major >= least


class EarlierInputWorth(GemmInputWorth):
    """A product of elements is as others are, and a slice only of what is given."""

    __slots__ = ()

    def is_worth(self, instruction: MutableInstruction) -> bool:
        added = added_bytes(instruction)
        if added is None:
            return False
        if added <= self.tolerance:
            return True
        return (
            len(instruction.users) <= 1
            and all(operand.opcode in _GIVEN for operand in instruction.operands)
            and (
                instruction.opcode == "slice"
                or all(len(operand.users) <= 1 for operand in instruction.operands)
            )
        )


_BOOK = (
    GPU_GEMM_V1_0_6_2.renamed("gpu-gemm-v1-0.4.38")
    .with_rule(EarlierDots())
    .with_rule(EarlierInputWorth())
)
GPU_GEMM_0_4_38 = replace(_BOOK, rules=(*_BOOK.rules, LoneDot()))
