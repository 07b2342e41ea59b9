"""The GPU model of one compiler version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.dump.device import Device
from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters
from fusionscope.gpu.triton_support import TritonVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """How one compiler version emits kernels and estimates their run time, with the flags that its
    GPU rules depend on: the version's defaults, or the values from a dump.

    ``max_unroll`` is xla_gpu_experimental_max_unroll_factor, ``has_heroless_triton``
    xla_gpu_experimental_enable_triton_heroless_priority_fusion, ``gemm_threshold``
    xla_gpu_gemm_rewrite_size_threshold, ``has_triton_outputs``
    xla_gpu_unsupported_enable_triton_multi_output_fusion.
    """

    emitters: Emitters
    formulas: CostFormulas
    triton: TritonVersion
    max_unroll: int
    has_heroless_triton: bool = False
    gemm_threshold: int = 100
    has_triton_outputs: bool = False

    def on(self, device: Device) -> GpuModel:
        """Return the model with the options that do not affect kernels on ``device`` reset."""
        return self if self.formulas.reads_max_unroll(device) else replace(self, max_unroll=0)

    def costs_on(self, device: Device) -> GpuModel:
        """Return the part that costs on ``device`` depend on: equal parts give equal costs."""
        return replace(
            self.on(device), has_heroless_triton=False, gemm_threshold=0, has_triton_outputs=False
        )
