"""What a version of the compiler takes a GPU for."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters
from fusionscope.gpu.triton_support import TritonVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """What a version of the compiler can make kernels with, and how long it takes them to run; and
    the flags that its rules for GPUs depend on, as they are by default or as a dump has them.

    ``max_unroll`` is xla_gpu_experimental_max_unroll_factor, ``has_heroless_triton``
    xla_gpu_experimental_enable_triton_heroless_priority_fusion, ``gemm_threshold``
    xla_gpu_gemm_rewrite_size_threshold.
    """

    emitters: Emitters
    formulas: CostFormulas
    triton: TritonVersion
    max_unroll: int
    has_heroless_triton: bool = False
    gemm_threshold: int = 100
