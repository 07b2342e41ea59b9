"""The fusion passes of jaxlib 0.10.0 for CPUs: no dot or convolution begins a library fusion."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.cpu.instruction_fusion.rules import SkipCustomInEmbedded
from fusionscope.passes.cpu.library_fusion.rules import Starters
from fusionscope.versions.jaxlib_0_10_1 import cpu as newer
from fusionscope.versions.jaxlib_0_10_1.cpu import YNN_0_10_1
from fusionscope.versions.jaxlib_0_10_2.cpu import CPU_FUSION_0_10

_OF_KERNELS = frozenset({"INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION"})


class StartersWithoutKernels(Starters):
    """A single dot or convolution calls YNN without a fusion around it."""

    __slots__ = ()

    def starts(self, operation: MutableInstruction, types: frozenset[str]) -> int | None:
        return Starters.starts(self, operation, types - _OF_KERNELS)


CPU_FUSION_0_10_0 = CPU_FUSION_0_10.renamed("cpu-fusion-0.10.0").with_rule(SkipCustomInEmbedded())
YNN_0_10_0 = YNN_0_10_1.renamed("cpu-ynn-0.10.0").with_rule(StartersWithoutKernels())

COMPILER = replace(newer.COMPILER, name="cpu-0.10.0", release="0.10.0").with_books(
    YNN_0_10_0, CPU_FUSION_0_10_0
)
