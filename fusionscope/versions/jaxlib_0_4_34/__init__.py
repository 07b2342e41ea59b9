"""jaxlib 0.4.34. For CPUs, its dumps replay with the rules of 0.4.38."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableModule
from fusionscope.versions import jaxlib_0_4_38
from fusionscope.versions.version import KnownCompiler, Version, begins, follows


def normalize_layouts(graph: MutableModule) -> None:
    from fusionscope.user_order import layout_normalization

    layout_normalization.normalize_layouts(graph, spares_bitcasts=False)


VERSION = Version(
    name="0.4.34",
    gained={
        "cpu": (
            begins("SubbytePacker_pipeline", "sub-byte-size-setter", is_always=True),
            begins("HLO_passes_through_layout_assignment", "result_caster"),
        ),
        "gpu": (
            begins("conv_canonicalization", "float-normalization-bf16"),
            begins("pre-spmd-partitioner", "gather_scatter_normalizer"),
            follows("hlo_normalization", "triton-gemm-rewriter", "gemm-fusion-swap-operands"),
        ),
    },
    lost={
        "cpu": (begins("HLO_passes_through_layout_assignment", "gather_scatter_normalizer"),),
        "gpu": (begins("conv_canonicalization", "bf16-normalization"),),
    },
    compilers=(
        jaxlib_0_4_38.VERSION.compilers[0],
        KnownCompiler("gpu-0.4.34", f"{__name__}.gpu", has_priority_fusion=False),
    ),
    rewriters={"layout_normalization": normalize_layouts},
)
