"""The rules for unfused operations that are wrapped in a fusion, so that they can be emitted.

Source of all: xla/backends/gpu/transforms/fusion_wrapper.cc, MustWrapInstruction.
"""

from __future__ import annotations

from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.rule import Decision, RuleBook

_WRAPPED = (UNARY | BINARY) - {"copy", "logistic"} | frozenset(
    """broadcast clamp concatenate convolution dot dynamic-slice dynamic-update-slice gather iota
    map pad reduce reduce-window reshape reverse scatter select slice transpose""".split()
)


class GpuWrap(OperationRule):
    __slots__ = ()
    id: ClassVar = "gpu-wrap"

    def check(self, operation: MutableInstruction) -> Decision | None:
        return self.allow() if operation.opcode in _WRAPPED else None


class GpuNoWrap(OperationRule):
    __slots__ = ()
    id: ClassVar = "gpu-no-wrap"

    def check(self, operation: MutableInstruction) -> Decision | None:
        return self.refuse(operation=operation.opcode)


GPU_WRAPPER: RuleBook[OperationRule] = RuleBook(
    "gpu-wrapper",
    "fusion-wrapper",
    "gpu",
    (GpuWrap(), GpuNoWrap()),
)
