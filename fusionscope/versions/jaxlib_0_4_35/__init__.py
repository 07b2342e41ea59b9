"""jaxlib 0.4.35. For CPUs, its dumps replay with the rules of 0.4.38."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_4_38
from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.4.35",
    gained={
        "gpu": (begins("collective-optimizations", "all-reduce-simp"),),
    },
    lost={
        "gpu": (begins("collective-optimizations", "all-reduce-folder"),),
    },
    compilers=(
        jaxlib_0_4_38.VERSION.compilers[0],
        KnownCompiler("gpu-0.4.35", f"{__name__}.gpu", has_priority_fusion=False),
    ),
)
