"""jaxlib 0.9.1, whose dumps replay with the rules of 0.9.2."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_9_2
from fusionscope.versions.version import Version, follows

VERSION = Version(
    name="0.9.1",
    gained={
        "cpu": (follows("dot-library-passes", "dot-library-rewriter", "pipeline-end"),),
        "gpu": (
            follows(
                "post-layout_assignment", "autotuner", "cublas-gemm-broadcast-folding-rewriter"
            ),
        ),
    },
    lost={
        "gpu": (follows("post-layout_assignment", "autotuner", "gemm-workspace-rewriter"),),
    },
    flag="xla_gpu_experimental_all_fusions_with_triton",
    compilers=jaxlib_0_9_2.VERSION.compilers,
)
