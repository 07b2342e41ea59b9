"""The fusion passes of jaxlib 0.10.1 for GPUs, and its model of a GPU."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.versions.jaxlib_0_10_2 import gpu as newer
from fusionscope.versions.jaxlib_0_10_2.gpu import GPU_0_10, TRITON_0_10

TRITON_0_10_1 = replace(TRITON_0_10, has_concatenates=False, division="floordiv")
GPU_0_10_1 = replace(GPU_0_10, triton=TRITON_0_10_1)

COMPILER = replace(newer.COMPILER, name="gpu-0.10.1", release="0.10.1", gpu=GPU_0_10_1)
