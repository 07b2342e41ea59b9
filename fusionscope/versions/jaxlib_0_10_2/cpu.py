"""The fusion passes of jaxlib 0.10 for CPUs."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.cpu.fusion_wrapper.rules import CPU_WRAPPER, Wrap, WrapConvolution
from fusionscope.passes.cpu.instruction_fusion.rules import SoftmaxCoupling
from fusionscope.passes.cpu.library_fusion.rules import Dot, Elementwise, Grow
from fusionscope.versions.jaxlib_0_11_2 import cpu as newer
from fusionscope.versions.jaxlib_0_11_2.cpu import CPU_FUSION_0_11, YNN_0_11

_NOT_WRAPPED = frozenset(
    "acos acosh asin asinh atanh cosh dynamic-update-slice sinh transpose".split()
)

CPU_FUSION_0_10 = CPU_FUSION_0_11.renamed("cpu-fusion-0.10").without(SoftmaxCoupling.id)
YNN_0_10 = (
    YNN_0_11.renamed("cpu-ynn-0.10")
    .with_rule(Elementwise(Elementwise().unary - {"cosine", "sine", "tan"}))
    .with_rule(Dot(types=Dot().types - {("bf16", "bf16", "bf16")}))
    .with_rule(Grow(limit=None))
)
CPU_WRAPPER_0_10 = (
    CPU_WRAPPER.renamed("cpu-wrapper-0.10")
    .with_rule(Wrap(Wrap().operations - _NOT_WRAPPED))
    .without(WrapConvolution.id)
)

COMPILER = replace(newer.COMPILER, name="cpu-0.10", release="0.10.2").with_books(
    YNN_0_10, CPU_FUSION_0_10, CPU_WRAPPER_0_10
)
