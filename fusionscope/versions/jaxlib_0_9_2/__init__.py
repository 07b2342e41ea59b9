"""jaxlib 0.9.2."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins, follows

VERSION = Version(
    name="0.9.2",
    gained={
        "gpu": (
            begins("optimization", "one-hot-rewriter", is_always=True),
            follows("hlo_normalization", "gemm-fusion-swap-operands", "hoist-fused-bitcasts"),
            follows("hlo_normalization", "hoist-fused-bitcasts", "dot-algorithm-rewriter"),
        ),
    },
    lost={
        "gpu": (begins("optimization", "ragged_dot_rewriter"),),
    },
    flag="xla_gpu_experimental_max_unroll_factor",
    compilers=(
        KnownCompiler("cpu-0.9.2", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.9.2", f"{__name__}.gpu"),
    ),
)
