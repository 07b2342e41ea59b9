"""The fusion passes of jaxlib 0.5.3 for CPUs: a reduction over major dimensions is not fused."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.cpu.instruction_fusion.rules import IntoLoopFusion, MajorReduction
from fusionscope.versions.jaxlib_0_6_2 import cpu as newer
from fusionscope.versions.jaxlib_0_6_2.cpu import CPU_FUSION_0_6_2

CPU_FUSION_0_5_3 = CPU_FUSION_0_6_2.renamed("cpu-fusion-0.5.3").with_before(
    IntoLoopFusion.id, MajorReduction()
)

COMPILER = replace(newer.COMPILER, name="cpu-0.5.3", release="0.5.3").with_books(CPU_FUSION_0_5_3)
