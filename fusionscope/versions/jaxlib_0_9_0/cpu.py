"""The fusion passes of jaxlib 0.9.0 for CPUs: nothing goes to YNN, rounding is cheap."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes import expense
from fusionscope.passes.cpu.fusion_wrapper.rules import WrapCopy
from fusionscope.passes.cpu.instruction_fusion.rules import ExpensiveReuse
from fusionscope.passes.cpu.library_fusion.rules import Starters
from fusionscope.versions.jaxlib_0_9_2 import cpu as newer
from fusionscope.versions.jaxlib_0_9_2.cpu import YNN_0_9_2
from fusionscope.versions.jaxlib_0_10_0.cpu import CPU_FUSION_0_10_0
from fusionscope.versions.jaxlib_0_10_2.cpu import CPU_WRAPPER_0_10


class PlainExpense(ExpensiveReuse):
    """What is expensive on other backends is so on a CPU: not rounding from f32 to bf16."""

    __slots__ = ()

    @staticmethod
    def is_expensive(operation: MutableInstruction) -> bool:
        return expense.is_expensive(operation)


YNN_0_9_0 = YNN_0_9_2.renamed("cpu-ynn-0.9.0").without(Starters.id)
CPU_FUSION_0_9_0 = CPU_FUSION_0_10_0.renamed("cpu-fusion-0.9.0").with_rule(PlainExpense())
CPU_WRAPPER_0_9_0 = CPU_WRAPPER_0_10.renamed("cpu-wrapper-0.9.0").without(WrapCopy.id)

COMPILER = replace(newer.COMPILER, name="cpu-0.9.0", release="0.9.0").with_books(
    YNN_0_9_0, CPU_FUSION_0_9_0, CPU_WRAPPER_0_9_0
)
