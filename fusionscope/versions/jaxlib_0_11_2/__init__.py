"""jaxlib 0.11.2."""

from __future__ import annotations

from fusionscope.versions.version import KnownCompiler, Version, begins, follows

VERSION = Version(
    name="0.11.2",
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
            begins("autotuner", "fusion-wrapper"),
            begins("collective-optimizations", "ragged-all-to-all-canonicalizer"),
            begins("post-scheduler-xla-transforms", "apply-xla-transforms"),
        ),
    },
    compilers=(
        KnownCompiler("cpu-0.11", f"{__name__}.cpu"),
        KnownCompiler("gpu-0.11", f"{__name__}.gpu"),
    ),
)
