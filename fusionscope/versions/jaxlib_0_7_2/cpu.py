"""The fusion passes of jaxlib 0.7.2 for CPUs: of single operations, only scatters are wrapped."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.cpu.fusion_wrapper.rules import Wrap
from fusionscope.versions.jaxlib_0_9_0 import cpu as newer
from fusionscope.versions.jaxlib_0_9_0.cpu import CPU_WRAPPER_0_9_0

CPU_WRAPPER_0_7_2 = CPU_WRAPPER_0_9_0.renamed("cpu-wrapper-0.7.2").with_rule(
    Wrap(frozenset({"scatter"}))
)

COMPILER = replace(newer.COMPILER, name="cpu-0.7.2", release="0.7.2").with_books(CPU_WRAPPER_0_7_2)
