"""The fusion passes of jaxlib 0.5.3 for GPUs: as in 0.6.2, with another message about Triton, and
transposes are grouped only after products.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.versions.jaxlib_0_6_2 import gpu as newer
from fusionscope.versions.jaxlib_0_7_2.gpu import GPU_0_7_2

GPU_0_5_3 = replace(GPU_0_7_2, triton=replace(GPU_0_7_2.triton, names_opcodes=False))

_NORMALIZATION = newer.COMPILER.pipelines["hlo_normalization"]
_FIRST = _NORMALIZATION.index("transpose-dimension-grouper")
_PIPELINES = {
    **newer.COMPILER.pipelines,
    "hlo_normalization": (*_NORMALIZATION[:_FIRST], *_NORMALIZATION[_FIRST + 1 :]),
}

COMPILER = replace(
    newer.COMPILER, name="gpu-0.5.3", release="0.5.3", pipelines=_PIPELINES, gpu=GPU_0_5_3
)
