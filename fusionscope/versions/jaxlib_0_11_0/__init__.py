"""jaxlib 0.11.0. For CPUs, its dumps replay with the rules of 0.10.2."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_10_2
from fusionscope.versions.version import KnownCompiler, Version, begins

VERSION = Version(
    name="0.11.0",
    gained={
        "gpu": (
            begins("pdl-launch-annotation", "pdl-launch-annotation", is_always=True, capability=9),
        ),
    },
    flag="xla_gpu_enable_pdl_launch",
    compilers=(
        jaxlib_0_10_2.VERSION.compilers[0],
        KnownCompiler("gpu-0.11.0", f"{__name__}.gpu"),
    ),
)
