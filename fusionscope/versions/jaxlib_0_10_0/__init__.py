"""jaxlib 0.10.0."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins, follows

VERSION = Version(
    name="0.10.0",
    gained={
        "cpu": (begins("async-collective", "async-collective-replacer", is_always=True),),
        "gpu": (follows("hlo_normalization", "triton-gemm-rewriter", "hoist-fused-bitcasts"),),
    },
    lost={
        "gpu": (
            follows("hlo_normalization", "triton-gemm-rewriter", "gemm-fusion-swap-operands"),
            follows("hlo_normalization", "gemm-fusion-swap-operands", "hoist-fused-bitcasts"),
            follows("hlo_normalization", "hoist-fused-bitcasts", "dot-algorithm-rewriter"),
        ),
    },
    flag="xla_gpu_experimental_force_split_k",
    compilers=(
        KnownCompiler("cpu-0.10.0", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.10.0", f"{__name__}.gpu"),
    ),
)
