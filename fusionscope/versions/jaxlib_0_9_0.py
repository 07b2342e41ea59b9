"""jaxlib 0.9.0."""

from __future__ import annotations

from fusionscope.versions.version import Version, follows

VERSION = Version(
    name="0.9.0",
    gained={
        "gpu": (follows("post-layout_assignment", "autotuner", "gemm-workspace-rewriter"),),
    },
    lost={
        "gpu": (
            follows("post-fusion_optimization", "rename_fusions", "collective-combiner-annotator"),
        ),
    },
)
