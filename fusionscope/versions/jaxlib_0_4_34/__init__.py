"""jaxlib 0.4.34."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableModule
from fusionscope.versions.version import KnownCompiler, Version, begins, follows


def normalize_layouts(graph: MutableModule) -> None:
    from fusionscope.user_order import layout_normalization

    layout_normalization.normalize_layouts(graph, spares_bitcasts=False)


VERSION = Version(
    name="0.4.34",
    gained={
        "gpu": (
            begins("conv_canonicalization", "float-normalization-bf16"),
            follows("hlo_normalization", "triton-gemm-rewriter", "gemm-fusion-swap-operands"),
        ),
    },
    lost={
        "gpu": (begins("conv_canonicalization", "bf16-normalization"),),
    },
    compilers=(KnownCompiler("gpu-0.4.34", f"{__name__}.gpu", has_priority_fusion=False),),
    rewriters={"layout_normalization": normalize_layouts},
)
