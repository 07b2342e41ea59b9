"""jaxlib 0.5.3."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.5.3",
    gained={
        "cpu": (begins("post_scatter_expansion_simplification", "algsimp", is_always=True),),
        "gpu": (begins("collective-optimizations", "ragged-all-to-all-canonicalizer"),),
    },
    lost={
        "gpu": (begins("collective-optimizations", "all-reduce-simp"),),
    },
    compilers=(
        KnownCompiler("cpu-0.5.3", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.5.3", f"{__name__}.gpu"),
    ),
)
