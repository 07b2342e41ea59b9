"""jaxlib 0.4.35."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.4.35",
    gained={
        "gpu": (
            begins("collective-optimizations", "all-reduce-simp"),
            begins("optimization", "gather_scatter_normalizer"),
        ),
    },
    lost={
        "gpu": (begins("collective-optimizations", "all-reduce-folder"),),
    },
    compilers=(KnownCompiler("gpu-0.4.35", f"{__name__}.gpu", has_priority_fusion=False),),
)
