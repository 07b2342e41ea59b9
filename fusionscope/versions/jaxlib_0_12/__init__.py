"""jaxlib 0.12."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins, follows

VERSION = Version(
    name="0.12",
    gained={
        "cpu": (begins("embedded_scatter_expansion", "scatter_expander", is_always=True),),
        "gpu": (
            follows(
                "pre-scheduling-copy-insertion", "copy-insertion", "constant-fill-copy-rewriter"
            ),
        ),
    },
    lost={
        "gpu": (
            begins("pre-spmd-partitioner", "async-collective-custom-call-rewriter"),
            follows("pre-scheduling-copy-insertion", "copy-insertion", "copy_fusion"),
        ),
    },
    compilers=(
        KnownCompiler("cpu-0.12", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.12", f"{__name__}.gpu"),
    ),
)
