"""The fusion passes of jaxlib 0.10.0 for GPUs: fewer dots, and less behind a dot, go to Triton,
whose fusions can also write what only they and others read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.gemm_fusion.rules import (
    Candidate,
    GemmOutputWorth,
    GemmState,
    GemmSupport,
)
from fusionscope.passes.rule import Decision
from fusionscope.versions.jaxlib_0_10_1 import gpu as newer
from fusionscope.versions.jaxlib_0_10_1.gpu import GPU_0_10_1
from fusionscope.versions.jaxlib_0_10_2.gpu import GPU_GEMM_V1_0_10

GPU_0_10_0 = replace(GPU_0_10_1, has_triton_outputs=True)

_DISTRIBUTIVE = frozenset(
    "bitcast broadcast convert copy multiply negate reshape slice transpose".split()
)
_ALGORITHMS = frozenset({"dot_f16_f16_f32", "dot_f64_f64_f64"})


class FewerDots(GemmSupport):
    """No dot of f64, of two algorithms, or of a precision that its operands ask for.

    Source: xla/backends/gpu/codegen/triton/support_legacy.cc, CanTritonHandleGEMM.
    """

    __slots__ = ()

    def check(self, dot: MutableInstruction, state: GemmState) -> Decision | None:
        algorithm = dot.attributes.get("algorithm")
        if algorithm is None and "high" in dot.attributes.get("operand_precision", ""):
            return self.refuse(
                "Having non-default operand precisions for Dot op with unset algorithm."
            )
        if algorithm in _ALGORITHMS:
            name = f"ALG_{algorithm.upper()}"
            return self.refuse(f"Unsupported algorithm on the current device(s): {name}")
        if dot.shape.element_type == "f64":
            return self.refuse("Unsupported output data type for Dot op.")
        return GemmSupport.check(self, dot, state)


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


GPU_GEMM_V1_0_10_0 = (
    GPU_GEMM_V1_0_10.renamed("gpu-gemm-v1-0.10.0")
    .with_rule(FewerDots())
    .with_rule(DistributiveOutputWorth())
)

COMPILER = replace(
    newer.COMPILER,
    name="gpu-0.10.0",
    release="0.10.0",
    gpu=GPU_0_10_0,
    pipelines={**newer.COMPILER.pipelines, "autotune-fusion-emitters": ("fusion-wrapper",)},
).with_books(GPU_GEMM_V1_0_10_0)
