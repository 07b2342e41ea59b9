"""jaxlib 0.10.2."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.10.2",
    gained={
        "cpu": (
            begins("pre-spmd-partitioner", "strip-memory-placement-annotations", is_always=True),
            begins("HLO_passes_after_scheduling", "apply-xla-transforms"),
        ),
        "gpu": (
            begins("autotuner", "fusion-wrapper"),
            begins("post-scheduler-xla-transforms", "apply-xla-transforms"),
        ),
    },
    lost={
        "gpu": (begins("autotune-fusion-emitters", "fusion-wrapper"),),
    },
    compilers=(
        KnownCompiler("cpu-0.10", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.10", f"{__name__}.gpu"),
    ),
)
