"""What jaxlib 0.10 does in its own way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.cpu.fusion_wrapper.rules import CPU_WRAPPER, Wrap, WrapConvolution
from fusionscope.passes.cpu.instruction_fusion.rules import SoftmaxCoupling
from fusionscope.passes.cpu.library_fusion.rules import Dot, Elementwise, Grow
from fusionscope.passes.gpu.gemm_fusion.dimension_order import Following
from fusionscope.passes.gpu.gemm_fusion.rules import GemmInputWorth
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1, OrderedDimensions
from fusionscope.versions.jaxlib_0_11 import CPU_FUSION_0_11, GPU_0_11, TRITON_0_11, YNN_0_11

RELEASE = "0.10.2"
"""The one against whose dumps the rules were held."""

_NOT_WRAPPED = frozenset(
    "acos acosh asin asinh atanh cosh dynamic-update-slice sinh transpose".split()
)
_FOLLOWING = Following(
    dead_ends=frozenset({"concatenate", "dynamic-slice"}),
    slices_in_memory=False,
    reshapes_slices=False,
    moves_parts=True,
)


@dataclass(frozen=True, slots=True)
class AnySliceWorth(GemmInputWorth):
    what: ClassVar = (
        "The operand reads more bytes than it writes, beyond the tolerance, and is not one of: an "
        "operation on two operands one of which is a broadcast of a parameter or constant; with no "
        "other user, one of parameters or constants that nothing else reads, a slice of a "
        "parameter or constant, or a slice of what others read too."
    )

    def is_cheap(self, instruction: MutableInstruction) -> bool:
        return True


CPU_FUSION_0_10 = CPU_FUSION_0_11.renamed("cpu-fusion-0.10").without(SoftmaxCoupling.id)
YNN_0_10 = (
    YNN_0_11.renamed("cpu-ynn-0.10")
    .with_rule(Elementwise(Elementwise().unary - {"cosine", "sine", "tan"}))
    .with_rule(Dot(types=Dot().types - {("bf16", "bf16", "bf16")}))
    .with_rule(Grow(limit=None))
)
CPU_WRAPPER_0_10 = (
    CPU_WRAPPER.renamed("cpu-wrapper-0.10")
    .with_rule(Wrap(Wrap().operations - _NOT_WRAPPED))
    .without(WrapConvolution.id)
)
GPU_GEMM_V1_0_10 = (
    GPU_GEMM_V1.renamed("gpu-gemm-v1-0.10")
    .with_rule(OrderedDimensions(_FOLLOWING))
    .with_rule(AnySliceWorth())
)

_ROW = "Reduction is not a row-reduction of a single operand."
TRITON_0_10 = replace(
    TRITON_0_11,
    has_unsigned=False,
    aligns_concatenates=False,
    many_operands=_ROW,
    many_dimensions=_ROW,
    limits_transposes=False,
    counts_padding=False,
)
GPU_0_10 = replace(GPU_0_11, triton=TRITON_0_10)
