"""Stages: one module before, between and after the passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusionscope.dump.files import DumpFile
from fusionscope.dump.names import FileName

BEFORE_OPTIMIZATIONS = "before_optimizations"
AFTER_OPTIMIZATIONS = "after_optimizations"
_BEFORE_CONFIG_ASSIGNMENT = "before_config_assignment"


@dataclass(frozen=True, slots=True)
class Stage:
    """One file that shows the module. ``proto`` is the same stage in binary form, if dumped.

    A stage that was dumped only as a proto has no ``text``. ``maker`` is the pass that made what
    differs from the stage before, where the file's name has another one (``with_makers``).
    """

    name: FileName
    text: DumpFile | None
    proto: DumpFile | None = None
    maker: str = ""

    @property
    def label(self) -> str:
        """The pipeline and passes, as the file name has them."""
        return self.name.label

    @property
    def pass_name(self) -> str:
        """The pass that left this stage behind; the label if no pass did."""
        return self.maker or self.name.after or self.label

    @property
    def file(self) -> DumpFile:
        path = self.text or self.proto
        assert path is not None
        return path

    @property
    def is_final(self) -> bool:
        return self.label.endswith(("after_optimizations", "after_codegen"))

    @property
    def is_amid_numbered(self) -> bool:
        """Whether the compiler wrote it between numbered stages, whose names do not tell where."""
        return self.label == _BEFORE_CONFIG_ASSIGNMENT

    @property
    def order(self) -> tuple[int, int]:
        """A sort key: the order in which the compiler wrote the stages of one module."""
        if self.name.counter is not None:
            return (_NUMBERED, self.name.counter)
        return (_FIXED.get(self.label, _FINAL), 0)


# The order of stages without a number. TPU prints the module around buffer assignment and once more
# after code generation.
_NUMBERED, _FINAL = 2, 4
_FIXED = {
    BEFORE_OPTIMIZATIONS: 0,
    "after_spmd_partitioner": 1,
    _BEFORE_CONFIG_ASSIGNMENT: 3,
    "after_optimizations_before_buffer_assignment": 3,
    "after_optimizations_after_buffer_assignment": 5,
    "after_codegen": 6,
}


START = "pipeline-start"
_BETWEEN = "between pipelines"


def with_makers(stages: Sequence[Stage]) -> Iterator[Stage]:
    """Yield the stages of a module with the passes that made those at which a pipeline begins.

    The beginning of a pipeline changes nothing. What differs there was made by the pass that runs
    the pipeline as a part of its work, as ``spmd-partitioning`` runs ``spmd-cleanup``: a pass that
    an earlier stage is before, and a later one after.
    """
    ends = {(s.name.pipeline, s.name.after): index for index, s in enumerate(stages)}
    for index, stage in enumerate(stages):
        if stage.name.after == START and index:
            running = (
                s.name.before
                for s in reversed(stages[:index])
                if s.name.pipeline != stage.name.pipeline
                and ends.get((s.name.pipeline, s.name.before), 0) > index
            )
            yield replace(stage, maker=next(running, _BETWEEN))
        else:
            yield stage


def backend_of(stages: tuple[Stage, ...]) -> str | None:
    """Return ``cpu``, ``gpu`` or ``tpu`` from the names of stages, None if they do not tell."""
    for stage in stages:
        label = stage.label
        if label.endswith("gpu_after_optimizations"):
            return "gpu"
        if label == "cpu_after_optimizations":
            return "cpu"
        if label == "after_codegen":
            return "tpu"
    pipelines = {stage.name.pipeline for stage in stages}
    passes = {p for stage in stages for p in (stage.name.after, stage.name.before)}
    if pipelines & {"Main_fusion", "Layout_assignment", "Phase_1_pre-layout_assignment_passes"}:
        return "tpu"
    if passes & {"priority-fusion", "triton-gemm-rewriter", "fusion_merger"} or any(
        "gpu" in pipeline or "nvptx" in pipeline for pipeline in pipelines
    ):
        return "gpu"
    if pipelines & {"HLO_passes_after_layout_assignment", "dot-library-passes"}:
        return "cpu"
    # A hit in the compilation cache leaves an after_optimizations stage on every backend.
    return "tpu" if any(stage.label.endswith("_buffer_assignment") for stage in stages) else None
