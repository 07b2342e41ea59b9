"""jaxlib 0.5.3."""

from __future__ import annotations

from fusionscope.versions.version import Version, begins

VERSION = Version(
    name="0.5.3",
    gained={
        "gpu": (begins("collective-optimizations", "ragged-all-to-all-canonicalizer"),),
    },
    lost={
        "gpu": (begins("collective-optimizations", "all-reduce-simp"),),
    },
)
