"""jaxlib 0.9.0. For GPUs, its dumps replay with the rules of 0.9.2."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_9_2
from fusionscope.versions.version import KnownCompiler, Version, follows

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
    flag="xla_gpu_default_to_alg_dot_bf16_bf16_f32",
    compilers=(
        KnownCompiler("cpu-0.9.0", f"{__name__}.cpu"),
        jaxlib_0_9_2.VERSION.compilers[1],
    ),
)
