"""The rules for operands that are fused into a sort.

Source of all: xla/backends/gpu/transforms/sort_iota_fusion.cc.
"""

from __future__ import annotations

from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.rule import Decision, RuleBook


class SortIota(OperationRule):
    __slots__ = ()
    id: ClassVar = "sort-iota"
    only_allows: ClassVar = True

    def check(self, operation: MutableInstruction) -> Decision | None:
        """Return the decision on ``operation``, an operand of a sort."""
        return self.allow() if operation.opcode == "iota" else None


GPU_SORTING: RuleBook[OperationRule] = RuleBook(
    "gpu-sorting",
    "sort-iota-fusion",
    "gpu",
    (SortIota(),),
)
