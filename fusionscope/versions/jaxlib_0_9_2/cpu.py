"""The fusion passes of jaxlib 0.9.2 for CPUs: a reduction goes to YNN alone, or with constants."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.cpu.library_fusion.rules import DataMove
from fusionscope.versions.jaxlib_0_10_0 import cpu as newer
from fusionscope.versions.jaxlib_0_10_0.cpu import YNN_0_10_0
from fusionscope.versions.jaxlib_0_10_1.cpu import Converts, LargeReduce

YNN_0_9_2 = (
    YNN_0_10_0.renamed("cpu-ynn-0.9.2")
    .with_rule(DataMove(frozenset({"constant"})))
    .with_rule(LargeReduce(not_behind=LargeReduce().not_behind | {"bitcast", "convert"}))
    .with_rule(Converts(unary=frozenset()))
)

COMPILER = replace(newer.COMPILER, name="cpu-0.9.2", release="0.9.2").with_books(YNN_0_9_2)
