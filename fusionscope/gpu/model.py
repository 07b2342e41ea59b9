"""The GPU model of one compiler version."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters
from fusionscope.gpu.triton_support import TritonVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """How one compiler version emits kernels and estimates their run time, with the flags that its
    GPU rules depend on: the version's defaults, or the values from a dump.

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
