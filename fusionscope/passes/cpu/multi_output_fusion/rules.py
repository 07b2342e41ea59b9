"""The rules for fusing two fusions or operations with a common operand into one with several
outputs.

Off unless ``--xla_backend_extra_options=xla_cpu_use_multi_output_fusion`` is given. Source of all:
xla/service/cpu/cpu_multi_output_fusion.cc and xla/service/multi_output_fusion.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fusionscope.graph.aliasing import in_place_operands
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_effective_scalar
from fusionscope.hlo.shape import Shape
from fusionscope.passes.cpu.emitters import is_emitted_elementwise
from fusionscope.passes.rule import Decision, Rule, RuleBook


class Connected(Protocol):
    def __call__(self, first: MutableInstruction, second: MutableInstruction, /) -> bool:
        """Return whether one of the two depends on the other."""


class SiblingRule(Rule):
    """A rule about two instructions, the first of which absorbs the second."""

    __slots__ = ()

    @abstractmethod
    def check(
        self, first: MutableInstruction, second: MutableInstruction, are_connected: Connected
    ) -> Decision | None:
        """Return the decision, or None to leave the pair to the next rule."""


class MultiOutputFusible(Rule):
    __slots__ = ()
    id: ClassVar = "cpu-mof-fusible"
    is_legality: ClassVar = True

    def is_fusible(self, instruction: MutableInstruction) -> bool:
        if instruction.opcode == "constant":
            return False
        if instruction.is_loop_fusion and instruction.fused.root.opcode != "dot":
            return True
        return instruction.opcode != "dot" and is_emitted_elementwise(instruction.opcode)


@dataclass(frozen=True, slots=True)
class MultiOutputOperands(SiblingRule):
    id: ClassVar = "cpu-mof-operands"

    limit: int = 20

    def check(
        self, first: MutableInstruction, second: MutableInstruction, are_connected: Connected
    ) -> Decision | None:
        most = max(len(first.operands), len(second.operands))
        return self.refuse(operands=most, limit=self.limit) if most >= self.limit else None


class MultiOutputLegal(SiblingRule):
    __slots__ = ()
    id: ClassVar = "cpu-mof-legal"
    is_legality: ClassVar = True

    def check(
        self, first: MutableInstruction, second: MutableInstruction, are_connected: Connected
    ) -> Decision | None:
        if first.opcode != "fusion" or first is second:
            return self.refuse(first=first.opcode)
        for end in (first, second):
            if not end.users and not end.is_root:
                return self.refuse(unread=end.name)
            if end.is_multi_output and any(u.opcode != "get-tuple-element" for u in end.users):
                return self.refuse(several_outputs=end.name)
        if are_connected(first, second):
            return self.refuse(connected="yes")
        overwritten = [
            {end.operands[update.slot] for update in in_place_operands(end)}
            for end in (first, second)
        ]
        if overwritten[0] & overwritten[1]:
            return self.refuse(overwritten="the same")
        return None


class MultiOutputShape(SiblingRule):
    __slots__ = ()
    id: ClassVar = "cpu-mof-shape"
    is_legality: ClassVar = True

    def check(
        self, first: MutableInstruction, second: MutableInstruction, are_connected: Connected
    ) -> Decision | None:
        shapes = _looped_over(first), _looped_over(second)
        if shapes[0] == shapes[1]:
            return None
        return self.refuse(first=str(shapes[0]), second=str(shapes[1]))


def _looped_over(instruction: MutableInstruction) -> Shape:
    if instruction.is_multi_output:
        return instruction.fused.root.operands[0].shape
    return instruction.shape


class MultiOutputProfit(Rule):
    __slots__ = ()
    id: ClassVar = "cpu-mof-profit"


def shared_bytes(first: MutableInstruction, second: MutableInstruction) -> int:
    """Return the bytes that need not be read a second time. Source: GetProfit."""
    shared = {operand for operand in first.operands if is_profitable(operand)}
    return sum(_bytes(operand.shape) for operand in second.operands if operand in shared)


def is_profitable(operand: MutableInstruction) -> bool:
    """Source: IsProfitableOperand."""
    is_constant = operand.opcode == "constant" and is_effective_scalar(operand.shape)
    return not is_constant and len(operand.users) >= 2


_POINTER = 8


def _bytes(shape: Shape) -> int:
    """Return the bytes of a shape; for a tuple, of its pointers. Source: ShapeUtil::ByteSizeOf."""
    return _POINTER * len(shape.elements) if shape.is_tuple else shape.byte_size


@dataclass(frozen=True, slots=True)
class MultiOutputWorklist(Rule):
    id: ClassVar = "cpu-mof-worklist"

    slice: int = 128


CPU_MULTI_OUTPUT: RuleBook[Rule] = RuleBook(
    "cpu-multi-output",
    "cpu_multi_output_fusion",
    "cpu",
    (
        MultiOutputWorklist(),
        MultiOutputFusible(),
        MultiOutputOperands(),
        MultiOutputLegal(),
        MultiOutputShape(),
        MultiOutputProfit(),
    ),
)
