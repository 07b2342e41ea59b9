"""The model of a GPU of each version, with the flags as they are by default."""

from __future__ import annotations

from fusionscope.gpu.model import GpuModel
from fusionscope.versions.jaxlib_0_4_35 import GPU_0_4_35
from fusionscope.versions.jaxlib_0_10 import GPU_0_10
from fusionscope.versions.jaxlib_0_11 import GPU_0_11
from fusionscope.versions.jaxlib_0_12 import GPU_0_12
from fusionscope.versions.xla_2023.gpu_model import GPU_2023

# By the name of the version's books.
GPU_MODELS: dict[str, GpuModel] = {
    "gpu-0.12": GPU_0_12,
    "gpu-0.11": GPU_0_11,
    "gpu-0.10": GPU_0_10,
    "gpu-0.4.35": GPU_0_4_35,
    "gpu-0.4.34": GPU_0_4_35,
    "gpu-2023": GPU_2023,
}
