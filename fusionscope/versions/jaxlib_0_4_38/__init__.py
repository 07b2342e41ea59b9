"""jaxlib 0.4.38."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.4.38",
    gained={
        "cpu": (begins("HLO_passes_through_layout_assignment", "gather_scatter_normalizer"),),
        "gpu": (
            begins("optimization", "gather_scatter_normalizer"),
            begins("pre-spmd-partitioner", "cudnn-custom-call-converter"),
        ),
    },
    lost={
        "cpu": (begins("HLO_passes_through_layout_assignment", "result_caster"),),
        "gpu": (begins("pre-spmd-partitioner", "gather_scatter_normalizer"),),
    },
    compilers=(
        KnownCompiler("cpu-0.4.38", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.4.38", f"{__name__}.gpu"),
    ),
)
