"""jaxlib 0.8. For CPUs, its dumps replay with the rules of 0.9.0."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_9_0
from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.8",
    gained={
        "gpu": (
            begins("post-layout_assignment", "sub-byte-collective-normalization"),
            begins("autotune-fusion-emitters", "fusion-wrapper"),
        ),
    },
    lost={
        "gpu": (begins("post-layout_assignment", "float_normalization"),),
    },
    compilers=(
        jaxlib_0_9_0.VERSION.compilers[0],
        KnownCompiler("gpu-0.8", f"{__name__}.gpu"),
    ),
)
