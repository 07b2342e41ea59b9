"""The fusion passes of jaxlib 0.12 for CPUs."""

from __future__ import annotations

from fusionscope.passes.cpu.fusion_wrapper.rules import CPU_WRAPPER
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.cpu.library_fusion.rules import YNN
from fusionscope.passes.cpu.multi_output_fusion.rules import CPU_MULTI_OUTPUT
from fusionscope.passes.fusion_pass import passes_of
from fusionscope.versions.compiler import Compiler

COMPILER = Compiler(
    name="cpu-0.12",
    release="0.12.0.1",
    passes=passes_of((YNN, CPU_FUSION, CPU_WRAPPER, CPU_MULTI_OUTPUT)),
    makes_functions=True,
)
