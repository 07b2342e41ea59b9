"""jaxlib 0.11.2."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.11.2",
    gained={
        "gpu": (begins("config-assigner", "conv-fp8-fallback"),),
    },
    lost={
        "gpu": (begins("autotuner", "fusion-wrapper"),),
    },
    compilers=(
        KnownCompiler("cpu-0.11", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.11", f"{__name__}.gpu"),
    ),
)
