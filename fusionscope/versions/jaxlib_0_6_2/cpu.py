"""The fusion passes of jaxlib 0.6.2 for CPUs: no library, reducers and constants are fused, too."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.cpu.instruction_fusion.rules import NonscalarConstant, SkipCustomOnly
from fusionscope.versions.jaxlib_0_7_2 import cpu as newer
from fusionscope.versions.jaxlib_0_9_0.cpu import CPU_FUSION_0_9_0, YNN_0_9_0

CPU_FUSION_0_6_2 = (
    CPU_FUSION_0_9_0.renamed("cpu-fusion-0.6.2")
    .without(NonscalarConstant.id)
    .with_rule(SkipCustomOnly())
)

COMPILER = (
    replace(newer.COMPILER, name="cpu-0.6.2", release="0.6.2")
    .without(YNN_0_9_0.pass_name)
    .with_books(CPU_FUSION_0_6_2)
)
