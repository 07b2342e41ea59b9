"""jaxlib 0.6.2."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.6.2",
    gained={
        "cpu": (
            begins("HLO_passes_through_layout_assignment", "batched_gather_scatter_normalizer"),
        ),
        "gpu": (begins("pre-fusion", "rename-instructions"),),
    },
    lost={
        "cpu": (begins("HLO_passes_through_layout_assignment", "gather_scatter_normalizer"),),
        "gpu": (begins("optimization", "gather_scatter_normalizer"),),
    },
    compilers=(
        KnownCompiler("cpu-0.6.2", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.6.2", f"{__name__}.gpu"),
    ),
)
