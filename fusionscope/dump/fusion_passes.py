"""The list of all passes that form, grow or dissolve fusions.

For each: its names in files and records, its purpose, and the place of its replay. A pass that
fusionscope replays is one line here and one folder of ``fusionscope/passes/``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Purpose(StrEnum):
    """The purpose of a pass."""

    DECIDES = "decides"  # on each producer and consumer
    LIBRARY = "library"  # forms fusions for a library, or for Triton
    MERGES = "merges"  # instructions and fusions into kernels with several outputs
    REWRITES = "rewrites"  # what is fused later, or how a fusion is emitted
    WRAPS = "wraps"  # single operations


class Record(StrEnum):
    """The name of a pass in the compiler's records of decisions."""

    INSTRUCTION_FUSION = "InstructionFusion"
    FUSION_MERGER = "FusionMerger"
    PRIORITY_FUSION = "PriorityFusion"
    MULTI_OUTPUT_FUSION = "multi-output fusion"


class KnownPass(NamedTuple):
    """A pass that forms, grows or dissolves fusions.

    ``name`` is unique within its ``backend``, and files use it too unless ``file_name`` is given:
    the second run of a pass can be a separate pass.

    ``place`` is the folder below ``fusionscope.passes`` with its rules and its replay, or None if
    fusionscope only knows the name. ``record`` is None if no record has its decisions.
    ``takes_overrides`` is whether it applies the user's overrides to each pair, ``keeps_apart``
    whether it fuses no forbidden pair: its rules ask, or it fuses no producer into a consumer. In a
    replay of any other pass, barriers separate forbidden pairs. A pass does not run if one of
    ``needed_flags`` is false, nor, if it ``needs_triton``, on a GPU that Triton does not support.
    ``is_silent`` means that it may change a module and report no change.
    """

    backend: str
    name: str
    purpose: Purpose
    place: str | None = None
    record: Record | None = None
    takes_overrides: bool = False
    keeps_apart: bool = False
    file_name: str | None = None
    needed_flags: tuple[str, ...] = ()
    needs_triton: bool = False
    is_silent: bool = False

    @property
    def in_files(self) -> str:
        """The name that files use."""
        return self.file_name or self.name


PRIORITY_FUSION = "priority-fusion"

_DECIDES, _LIBRARY, _MERGES, _REWRITES, _WRAPS = Purpose
_OLD = "gpu_legacy"
_INSTRUCTION_FUSION, _FUSION_MERGER, _PRIORITY_FUSION, _MULTI_OUTPUT_FUSION = Record

# Of each backend in the order in which they run. Sources: xla/service/cpu/cpu_compiler.cc,
# xla/service/gpu/gpu_compiler.cc, xla/backends/gpu/transforms/fusion_pipeline.cc; for TPU the names
# in real dumps.
FUSION_PASSES: tuple[KnownPass, ...] = (
    KnownPass("cpu", "dot-library-rewriter", _LIBRARY, "cpu.library_fusion"),
    KnownPass("cpu", "onednn-contraction-rewriter", _LIBRARY),
    KnownPass("cpu", "fusion", _DECIDES, "cpu.instruction_fusion",
              _INSTRUCTION_FUSION, takes_overrides=True, keeps_apart=True),
    KnownPass("cpu", "fusion-wrapper", _WRAPS, "cpu.fusion_wrapper"),
    KnownPass("cpu", "cpu_multi_output_fusion", _MERGES,
              "cpu.multi_output_fusion", _MULTI_OUTPUT_FUSION, keeps_apart=True),
    KnownPass("gpu", "triton-gemm-rewriter", _LIBRARY, "gpu.gemm_fusion",
              needed_flags=("xla_gpu_enable_triton_gemm", "xla_gpu_triton_gemm_any"),
              needs_triton=True),
    KnownPass("gpu", "gemm-fusion", _LIBRARY),
    KnownPass("gpu", "cudnn-fused-mha-rewriter", _LIBRARY),
    KnownPass("gpu", "triton-softmax-rewriter", _MERGES, "gpu.softmax_fusion", needs_triton=True),
    KnownPass("gpu", "softmax-rewriter-triton", _MERGES),
    KnownPass("gpu", "variadic-op-splitter", _REWRITES, "gpu.variadic_op_splitter"),
    KnownPass("gpu", "sort-iota-fusion", _MERGES, "gpu.sort_iota_fusion"),
    KnownPass("gpu", "fusion", _DECIDES, f"{_OLD}.instruction_fusion",
              _INSTRUCTION_FUSION, takes_overrides=True, keeps_apart=True),
    KnownPass("gpu", "fusion-duplicating", _DECIDES,
              f"{_OLD}.instruction_fusion", _INSTRUCTION_FUSION,
              takes_overrides=True, keeps_apart=True, file_name="fusion"),
    KnownPass("gpu", "fusion_merger", _DECIDES, f"{_OLD}.fusion_merger", _FUSION_MERGER),
    KnownPass("gpu", PRIORITY_FUSION, _DECIDES, "gpu.priority_fusion",
              _PRIORITY_FUSION, takes_overrides=True, keeps_apart=True),
    KnownPass("gpu", "multi_output_fusion", _MERGES,
              "gpu.multi_output_fusion", _MULTI_OUTPUT_FUSION, keeps_apart=True),
    KnownPass("gpu", "horizontal_loop_fusion", _MERGES,
              f"{_OLD}.horizontal_fusion", keeps_apart=True),
    KnownPass("gpu", "horizontal_input_fusion", _MERGES,
              f"{_OLD}.horizontal_fusion", keeps_apart=True, is_silent=True),
    KnownPass("gpu", "gpu_horizontal_loop_fusion", _MERGES,
              f"{_OLD}.horizontal_fusion", keeps_apart=True),
    KnownPass("gpu", "gpu_horizontal_input_fusion", _MERGES,
              f"{_OLD}.horizontal_fusion", keeps_apart=True, is_silent=True),
    KnownPass("gpu", "dynamic-slice-fusion-rewriter", _LIBRARY),
    KnownPass("gpu", "dynamic-slice-fusion-rewriter-v2", _LIBRARY),
    KnownPass("gpu", "address-computation-fusion-rewriter", _LIBRARY),
    KnownPass("gpu", "copy-fusion", _MERGES),
    KnownPass("gpu", "copy_fusion", _MERGES, "gpu.copy_fusion"),
    KnownPass("gpu", "fusion-wrapper", _WRAPS, "gpu.fusion_wrapper"),
    KnownPass("gpu", "collective-fusion", _REWRITES),
    KnownPass("gpu", "fusion-block-level-rewriter", _REWRITES, "gpu.block_level",
              needs_triton=True),
    KnownPass("tpu", "tpu_fusion", _DECIDES, None, _INSTRUCTION_FUSION),
    KnownPass("tpu", "tpu_multi_output_fusion", _MERGES, None, _MULTI_OUTPUT_FUSION),
    KnownPass("tpu", "tpu_trivial_instruction_unfuser", _REWRITES),
)  # fmt: skip


def find_fusion_pass(name: str, backend: str) -> KnownPass:
    """Raises ``KeyError`` where the backend has no pass of the name."""
    return _BY_NAME[backend, name]


def names_in_files(backend: str | None) -> frozenset[str]:
    """Return the names that files use for the fusion passes of ``backend``."""
    return frozenset(
        fusion_pass.in_files for fusion_pass in FUSION_PASSES if fusion_pass.backend == backend
    )


def names_of_record(record: str | None) -> tuple[str, ...]:
    """The names that files use for passes that records call ``record``, on any backend."""
    names = (
        fusion_pass.in_files
        for fusion_pass in FUSION_PASSES
        if record and fusion_pass.record == record
    )
    return tuple(dict.fromkeys(names))


_BY_NAME = {(fusion_pass.backend, fusion_pass.name): fusion_pass for fusion_pass in FUSION_PASSES}
