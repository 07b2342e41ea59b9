"""jaxlib 0.11.0."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_10_2
from fusionscope.versions.version import Version, begins

VERSION = Version(
    name="0.11.0",
    gained={
        "gpu": (begins("pdl-launch-annotation", "pdl-launch-annotation"),),
    },
    compilers=jaxlib_0_10_2.VERSION.compilers,
)
