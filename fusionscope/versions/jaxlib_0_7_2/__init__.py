"""jaxlib 0.7.2."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableModule
from fusionscope.versions.version import KnownCompiler, Version, begins, follows


def normalize_layouts(graph: MutableModule) -> None:
    from fusionscope.user_order import layout_normalization

    layout_normalization.normalize_layouts(graph)


VERSION = Version(
    name="0.7.2",
    gained={
        "cpu": (
            begins("dot-library-passes", "dot_decomposer", is_always=True),
            follows(
                "HLO_passes_after_layout_assignment", "fusion-wrapper", "cpu-all-reduce-combiner"
            ),
        ),
        "gpu": (
            begins("optimization", "ragged_dot_rewriter"),
            begins("sanitize-constant-names", "sanitize-constant-names"),
            follows("post-fusion_optimization", "rename_fusions", "collective-combiner-annotator"),
        ),
    },
    lost={
        "gpu": (begins("horizontal_fusion", "horizontal_loop_fusion"),),
    },
    compilers=(
        KnownCompiler("cpu-0.7.2", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.7.2", f"{__name__}.gpu"),
    ),
    rewriters={"layout_normalization": normalize_layouts},
)
