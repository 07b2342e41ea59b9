"""jaxlib 0.10.0."""

from __future__ import annotations

from fusionscope.versions.version import Version, begins

VERSION = Version(
    name="0.10.0",
    gained={
        "cpu": (begins("async-collective", "async-collective-replacer"),),
    },
)
