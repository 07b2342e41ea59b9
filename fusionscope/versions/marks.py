"""How a version of jaxlib shows in a dump: which pass runs where.

A dump does not name its compiler. Its file names tell which pass follows which, and every pipeline
leaves a stage before its first pass, whatever the program. A version of XLA that moves a pass or
begins a pipeline with another one thus leaves a mark. Those below were found by compiling the same
programs with each of the versions; `tools/conformance/find_marks.py` does so again.
"""

from __future__ import annotations

from dataclasses import dataclass

# The releases of jaxlib that were looked at, the oldest first, and XLA of early 2023. Those that
# no mark tells apart are one (0.8.0 and 0.8.3, 0.12.0 and 0.12.0.1); those between two that were
# looked at are taken for one of the two. Behind each what the rules are called that were checked
# against its dumps; None where there are none.
RULES: dict[str, str | None] = {
    "2023": "2023",
    "0.4.34": "0.4.34",
    "0.4.35": "0.4.35",
    "0.5.3": None,
    "0.6.2": None,
    "0.7.2": None,
    "0.8": None,
    "0.9.0": None,
    "0.9.2": None,
    "0.10.0": None,
    "0.10.2": "0.10",
    "0.11.0": "0.10",
    "0.11.2": "0.11",
    "0.12": "0.12",
}
VERSIONS = tuple(RULES)
_START = "pipeline-start"


@dataclass(frozen=True, slots=True)
class Mark:
    """In ``pipeline``, the pass ``before`` comes right behind the pass ``after``, from the version
    ``since`` to the version ``until``; None where that was so before, or is so still.

    ``is_always`` says that every dump of all passes has it, so that one without it is of no such
    version.
    """

    pipeline: str
    after: str
    before: str
    since: str | None = None
    until: str | None = None
    is_always: bool = False

    @property
    def place(self) -> tuple[str, str, str]:
        return self.pipeline, self.after, self.before

    @property
    def versions(self) -> frozenset[str]:
        first = VERSIONS.index(self.since) if self.since is not None else 0
        last = VERSIONS.index(self.until) if self.until is not None else len(VERSIONS) - 1
        return frozenset(VERSIONS[first : last + 1])

    def __str__(self) -> str:
        if self.after == _START:
            return f"{self.pipeline} begins with {self.before}"
        return f"{self.before} behind {self.after}"


_THROUGH_LAYOUT = "HLO_passes_through_layout_assignment"
_AFTER_SCHEDULING = "HLO_passes_after_scheduling"

MARKS: dict[str, tuple[Mark, ...]] = {
    "cpu": (
        Mark(_THROUGH_LAYOUT, _START, "gather_scatter_normalizer", until="0.5.3"),
        Mark(_THROUGH_LAYOUT, _START, "batched_gather_scatter_normalizer", since="0.6.2"),
        Mark("dot-library-passes", _START, "dot_decomposer", since="0.7.2", is_always=True),
        Mark("HLO_passes_after_layout_assignment", "fusion-wrapper", "cpu-all-reduce-combiner",
             since="0.8"),
        Mark("dot-library-passes", "dot-library-rewriter", "pipeline-end", since="0.9.2"),
        Mark("pre-spmd-partitioner", _START, "strip-memory-placement-annotations",
             since="0.10.2", is_always=True),
        Mark("async-collective", _START, "async-collective-replacer",
             since="0.10.0", until="0.11.0"),
        Mark(_AFTER_SCHEDULING, _START, "apply-xla-transforms", since="0.10.2", until="0.11.0"),
        Mark(_THROUGH_LAYOUT, "cse", "cse_barrier_expander", until="0.11.0"),
        Mark("async-collective", _START, "async-collective-custom-call-rewriter",
             since="0.11.2", is_always=True),
        Mark(_AFTER_SCHEDULING, _START, "apply-xla-transforms-1", since="0.11.2"),
        Mark("embedded_scatter_expansion", _START, "scatter_expander",
             since="0.12", is_always=True),
    ),
    "gpu": (
        Mark("conv_canonicalization", _START, "bf16-normalization", until="2023"),
        Mark("conv_canonicalization", _START, "float-normalization-bf16", since="0.4.34"),
        Mark("collective-optimizations", _START, "all-reduce-folder", until="0.4.34"),
        Mark("collective-optimizations", _START, "all-reduce-simp", since="0.4.35", until="0.4.35"),
        Mark("collective-optimizations", _START, "ragged-all-to-all-canonicalizer",
             since="0.5.3", until="0.11.0"),
        Mark("optimization", _START, "gather_scatter_normalizer", since="0.4.35", until="0.5.3"),
        Mark("pre-fusion", _START, "rename-instructions", since="0.6.2"),
        Mark("horizontal_fusion", _START, "horizontal_loop_fusion", until="0.6.2"),
        Mark("sanitize-constant-names", _START, "sanitize-constant-names", since="0.7.2"),
        Mark("post-layout_assignment", _START, "float_normalization", until="0.7.2"),
        Mark("post-layout_assignment", _START, "sub-byte-collective-normalization", since="0.8"),
        Mark("post-fusion_optimization", "rename_fusions", "collective-combiner-annotator",
             since="0.7.2", until="0.8"),
        Mark("post-layout_assignment", "autotuner", "gemm-workspace-rewriter",
             since="0.9.0", until="0.9.0"),
        Mark("optimization", _START, "one-hot-rewriter", since="0.9.2", until="0.10.0"),
        Mark("propagate-call-metadata", _START, "propagate-call-metadata", since="0.10.2"),
        Mark("post-scheduler-xla-transforms", _START, "apply-xla-transforms",
             since="0.10.2", until="0.11.0"),
        Mark("pdl-launch-annotation", _START, "pdl-launch-annotation", since="0.11.0"),
        Mark("collective-optimizations", _START, "legalize-collective-domain", since="0.11.2"),
        Mark("pre-spmd-partitioner", _START, "async-collective-custom-call-rewriter",
             since="0.11.2", until="0.11.2", is_always=True),
        Mark("pre-scheduling-copy-insertion", "copy-insertion", "copy_fusion", until="0.11.2"),
        Mark("pre-scheduling-copy-insertion", "copy-insertion", "constant-fill-copy-rewriter",
             since="0.12"),
    ),
}  # fmt: skip
