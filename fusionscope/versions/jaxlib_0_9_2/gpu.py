"""The fusion passes of jaxlib 0.9.2 for GPUs: only linear operations join the dot before them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.passes.gpu.gemm_fusion.rules import Candidate, GemmOutputWorth, GemmState
from fusionscope.passes.rule import Decision
from fusionscope.versions.jaxlib_0_10_1 import gpu as newer
from fusionscope.versions.jaxlib_0_10_1.gpu import GPU_0_10_1
from fusionscope.versions.jaxlib_0_10_2.gpu import GPU_GEMM_V1_0_10

_DISTRIBUTIVE = frozenset(
    "bitcast broadcast convert copy multiply negate reshape slice transpose".split()
)


@dataclass(frozen=True, slots=True)
class DistributiveOutputWorth(GemmOutputWorth):
    """A dot that is split along its sum may end with operations that distribute over addition.

    Source: IsDistributiveOverAddition.
    """

    operations: frozenset[str] = _DISTRIBUTIVE

    def check(self, candidate: Candidate, state: GemmState) -> Decision | None:
        opcode = candidate.original.opcode
        if opcode not in self.operations:
            return self.refuse(operation=opcode)
        return GemmOutputWorth.check(self, candidate, state)


GPU_GEMM_V1_0_9_2 = GPU_GEMM_V1_0_10.renamed("gpu-gemm-v1-0.9.2").with_rule(
    DistributiveOutputWorth()
)

_NORMALIZATION = tuple(
    name
    for name in newer.COMPILER.pipelines["hlo_normalization"]
    if name not in ("hoist-fused-bitcasts", "gemm-fusion-swap-operands")
)
_AFTER_GEMM = _NORMALIZATION.index("triton-gemm-rewriter") + 1
_PIPELINES = {
    **newer.COMPILER.pipelines,
    "hlo_normalization": (
        *_NORMALIZATION[:_AFTER_GEMM],
        "gemm-fusion-swap-operands",
        "hoist-fused-bitcasts",
        "dot-algorithm-rewriter",
        *_NORMALIZATION[_AFTER_GEMM:],
    ),
    "autotune-fusion-emitters": ("fusion-wrapper",),
}

GPU_0_9_2 = replace(GPU_0_10_1, triton=replace(GPU_0_10_1.triton, divides_halves=False))

COMPILER = replace(
    newer.COMPILER, name="gpu-0.9.2", release="0.9.2", pipelines=_PIPELINES, gpu=GPU_0_9_2
).with_books(GPU_GEMM_V1_0_9_2)
