"""jaxlib 0.11.1."""

from __future__ import annotations

from fusionscope.versions import jaxlib_0_11_2
from fusionscope.versions.version import Version, begins, follows

VERSION = Version(
    name="0.11.1",
    gained={
        "cpu": (
            begins("async-collective", "async-collective-custom-call-rewriter", is_always=True),
            begins("HLO_passes_after_scheduling", "apply-xla-transforms-1"),
        ),
        "gpu": (
            begins("collective-optimizations", "legalize-collective-domain"),
            begins("pre-spmd-partitioner", "async-collective-custom-call-rewriter", is_always=True),
        ),
    },
    lost={
        "cpu": (
            begins("async-collective", "async-collective-replacer"),
            begins("HLO_passes_after_scheduling", "apply-xla-transforms"),
            follows("HLO_passes_through_layout_assignment", "cse", "cse_barrier_expander"),
        ),
        "gpu": (
            begins("collective-optimizations", "ragged-all-to-all-canonicalizer"),
            begins("post-scheduler-xla-transforms", "apply-xla-transforms"),
        ),
    },
    compilers=jaxlib_0_11_2.VERSION.compilers,
)
