"""jaxlib 0.9.2."""

from __future__ import annotations

from fusionscope.versions.version import Version, begins, follows

VERSION = Version(
    name="0.9.2",
    gained={
        "cpu": (follows("dot-library-passes", "dot-library-rewriter", "pipeline-end"),),
        "gpu": (begins("optimization", "one-hot-rewriter"),),
    },
    lost={
        "gpu": (follows("post-layout_assignment", "autotuner", "gemm-workspace-rewriter"),),
    },
)
