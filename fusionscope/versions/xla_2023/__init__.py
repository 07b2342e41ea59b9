"""XLA of early 2023."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableModule
from fusionscope.versions.version import KnownCompiler, Version, begins, follows


def normalize_layouts(graph: MutableModule) -> None:
    from fusionscope.versions.xla_2023 import layout_normalization

    layout_normalization.normalize_layouts(graph)


VERSION = Version(
    name="2023",
    gained={
        "cpu": (
            begins("HLO_passes_through_layout_assignment", "gather_scatter_normalizer"),
            follows("HLO_passes_through_layout_assignment", "cse", "cse_barrier_expander"),
        ),
        "gpu": (
            begins("conv_canonicalization", "bf16-normalization"),
            begins("collective-optimizations", "all-reduce-folder"),
            begins("horizontal_fusion", "horizontal_loop_fusion"),
            begins("post-layout_assignment", "float_normalization"),
            follows("pre-scheduling-copy-insertion", "copy-insertion", "copy_fusion"),
        ),
    },
    compilers=(KnownCompiler("gpu-2023", f"{__name__}.gpu", has_priority_fusion=False),),
    rewriters={"layout_normalization": normalize_layouts},
)
