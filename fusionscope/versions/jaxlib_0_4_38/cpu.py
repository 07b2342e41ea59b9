"""The fusion passes of jaxlib 0.4.38 for CPUs: any concatenate and functions of custom calls are
fused, too, and nothing is wrapped.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.cpu.fusion_wrapper.rules import CPU_WRAPPER
from fusionscope.passes.cpu.instruction_fusion.rules import Concatenate, SkipCustomFusions
from fusionscope.versions.jaxlib_0_5_3 import cpu as newer
from fusionscope.versions.jaxlib_0_5_3.cpu import CPU_FUSION_0_5_3

CPU_FUSION_0_4_38 = (
    CPU_FUSION_0_5_3.renamed("cpu-fusion-0.4.38")
    .without(Concatenate.id)
    .with_rule(SkipCustomFusions())
)

COMPILER = (
    replace(newer.COMPILER, name="cpu-0.4.38", release="0.4.38")
    .without(CPU_WRAPPER.pass_name)
    .with_books(CPU_FUSION_0_4_38)
)
