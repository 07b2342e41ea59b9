"""jaxlib 0.10.1."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins, follows

VERSION = Version(
    name="0.10.1",
    gained={
        "gpu": (
            begins("propagate-call-metadata", "propagate-call-metadata"),
            begins("optimization", "ragged_dot_rewriter"),
        ),
    },
    lost={
        "gpu": (
            begins("optimization", "one-hot-rewriter"),
            follows(
                "post-layout_assignment", "autotuner", "cublas-gemm-broadcast-folding-rewriter"
            ),
        ),
    },
    compilers=(
        KnownCompiler("cpu-0.10.1", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.10.1", f"{__name__}.gpu"),
    ),
)
