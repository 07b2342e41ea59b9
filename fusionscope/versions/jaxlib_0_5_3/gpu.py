"""The fusion passes of jaxlib 0.5.3 for GPUs: as in 0.6.2, but Triton supports less, transposes are
grouped only after products and do not pack elements, and only loops read and write 4 bits.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.gpu.transposes import unpacked_transpose
from fusionscope.versions.jaxlib_0_6_2 import gpu as newer
from fusionscope.versions.jaxlib_0_7_2.gpu import GPU_0_7_2

_TRITON = replace(
    GPU_0_7_2.triton,
    names_opcodes=False,
    unsupported=frozenset({"bitcast-convert", "concatenate", "pad", "reverse"}),
)
GPU_0_5_3 = replace(
    GPU_0_7_2,
    emitters=replace(
        GPU_0_7_2.emitters, tiled_transpose=unpacked_transpose, loops_below_a_byte=True
    ),
    triton=_TRITON,
    formulas=replace(GPU_0_7_2.formulas, keeps_emissions=False),
    has_triton_outputs=False,
)

_NORMALIZATION = newer.COMPILER.pipelines["hlo_normalization"]
_FIRST = _NORMALIZATION.index("transpose-dimension-grouper")
_PIPELINES = {
    **newer.COMPILER.pipelines,
    "hlo_normalization": (*_NORMALIZATION[:_FIRST], *_NORMALIZATION[_FIRST + 1 :]),
}

COMPILER = replace(
    newer.COMPILER, name="gpu-0.5.3", release="0.5.3", pipelines=_PIPELINES, gpu=GPU_0_5_3
)
