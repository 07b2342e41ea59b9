"""The rules for unfused operations that are wrapped in a fusion, so that they can be emitted.

Source of all: xla/service/cpu/fusion_wrapper.cc, MustWrapInstruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.rule import Decision, RuleBook

_WRAPPED = (UNARY | BINARY) - {"copy", "logistic", "stochastic-convert"} | frozenset(
    """broadcast clamp dynamic-slice dynamic-update-slice gather iota map pad reduce reduce-window
        reshape reverse scatter select slice transpose""".split()
)


@dataclass(frozen=True, slots=True)
class Wrap(OperationRule):
    id: ClassVar = "cpu-wrap"

    operations: frozenset[str] = _WRAPPED

    def check(self, operation: MutableInstruction) -> Decision | None:
        return self.allow() if operation.opcode in self.operations else None


class WrapCopy(OperationRule):
    __slots__ = ()
    id: ClassVar = "cpu-wrap-copy"

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode != "copy":
            return None
        shape = operation.shape
        if shape == operation.operands[0].shape:
            return self.refuse(layout="unchanged")
        if not shape.is_array or shape.bits < 8 or shape.element_type.startswith("f8"):
            return self.refuse(type=shape.element_type)
        return self.allow()


class WrapConvolution(OperationRule):
    __slots__ = ()
    id: ClassVar = "cpu-wrap-conv"

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode != "convolution":
            return None
        return self.refuse(eigen="yes") if _can_use_eigen(operation) else self.allow(eigen="no")


def _can_use_eigen(convolution: MutableInstruction) -> bool:
    shapes = [operand.shape for operand in (*convolution.operands[:2], convolution)]
    labels = convolution.attributes.get("dim_labels", "")
    spatial = "".join(str(number) for number in range(shapes[0].rank - 2))
    return (
        shapes[0].element_type in ("f16", "f32")
        and "rhs_reversal" not in convolution.attributes.get("window", "")
        and 1 <= len(spatial) <= 3
        and labels == f"b{spatial}f_{spatial}io->b{spatial}f"
        and all(shape.element_count for shape in shapes)
        and all(
            shape.layout is None
            or shape.layout.minor_to_major == tuple(reversed(range(shape.rank)))
            for shape in shapes
        )
    )


class NoWrap(OperationRule):
    __slots__ = ()
    id: ClassVar = "cpu-no-wrap"

    def check(self, operation: MutableInstruction) -> Decision | None:
        return self.refuse(operation=operation.opcode)


CPU_WRAPPER: RuleBook[OperationRule] = RuleBook(
    "cpu-wrapper",
    "fusion-wrapper",
    "cpu",
    (Wrap(), WrapCopy(), WrapConvolution(), NoWrap()),
)
