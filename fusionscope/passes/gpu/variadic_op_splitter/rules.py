"""The rule for concatenations of many arrays, which are split before any fusion.

Source of all: xla/backends/gpu/transforms/variadic_op_splitter.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.rule import Decision, RuleBook


@dataclass(frozen=True, slots=True)
class SplitConcatenate(OperationRule):
    id: ClassVar = "vop-split"
    only_allows: ClassVar = True

    limit: int = 128

    def check(self, operation: MutableInstruction) -> Decision | None:
        count = len(operation.operands)
        if operation.opcode != "concatenate" or count <= self.limit:
            return None
        return self.allow(operands=count, limit=self.limit)


GPU_SPLITTER: RuleBook[OperationRule] = RuleBook(
    "gpu-splitter",
    "variadic-op-splitter",
    "gpu",
    (SplitConcatenate(),),
)
