"""The rules of copy fusion, which makes copies of a fusion's results outputs of that fusion.

Source of all: xla/backends/gpu/transforms/copy_fusion.cc, DoCopyFusion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fusionscope.gpu.body import FusionBody, part_roots
from fusionscope.gpu.reductions import has_reduction_emitter
from fusionscope.gpu.state import GpuState, is_fusion
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.search import reachable
from fusionscope.passes.gpu.multi_output_fusion.rules import OutputParameterBudget
from fusionscope.passes.gpu.priority_fusion.rules import (
    GpuPairRule,
    ReductionBudget,
    SharedMemoryBudget,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair


class CopyRule(GpuPairRule):
    """A rule about the producer of a value and a copy of that value in the entry computation.

    A get-tuple-element and a bitcast without other users may be in between.
    """

    __slots__ = ()


class CopiedFusion(CopyRule):
    __slots__ = ()
    id: ClassVar = "copy-fusion-source"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        if is_fusion(pair.producer) and not pair.producer.is_custom_fusion:
            return None
        return self.refuse(copied=pair.producer.opcode)


class CopiedElementwise(CopyRule):
    __slots__ = ()
    id: ClassVar = "copy-fusion-elementwise"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        for value in reachable(pair.producer.fused.parameters, lambda value: value.users):
            for user in value.users:
                if not _follows_elements(user, value):
                    return self.refuse(inside=user.name)
        return None


def _follows_elements(user: MutableInstruction, operand: MutableInstruction) -> bool:
    if user.opcode == "dynamic-update-slice":
        return user.operands[0] is operand
    return user.opcode in ("bitcast", "tuple") or (user.opcode != "copy" and is_elementwise(user))


class CopiedRoot(CopyRule):
    __slots__ = ()
    id: ClassVar = "copy-fusion-root"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        root = pair.producer.fused.root
        ends = [root]
        if pair.producer.is_multi_output:
            if all(operand.opcode == "slice" for operand in root.operands):
                return self.refuse(slices=len(root.operands))
            ends = [root.operands[_element(pair)]]
        for end in ends:
            if end.opcode == "scatter" or has_reduction_emitter(end, state.device):
                return self.refuse(ends_in=end.opcode)
        return None


def _element(pair: FusionPair) -> int:
    """Return the index of the copied result."""
    current = pair.consumer
    while current.opcode != "get-tuple-element":
        current = current.operands[0]
    return int(current.attributes["index"])


class CopiedLayout(CopyRule):
    __slots__ = ()
    id: ClassVar = "copy-fusion-layout"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        copy, source = pair.consumer, pair.consumer.operands[0]
        if copy.shape != source.shape:
            return self.refuse(source=str(source.shape), copy=str(copy.shape))
        if copy.shape.is_tuple:
            return self.refuse(elements=len(copy.shape.elements))
        waiting = len(copy.predecessors) + len(copy.successors)
        return self.refuse(control_dependencies=waiting) if waiting else None


class CopiedUpdate(CopyRule):
    __slots__ = ()
    id: ClassVar = "copy-fusion-dus"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        body = FusionBody(pair.producer)
        for root in part_roots(pair.producer):
            while root.opcode == "bitcast":
                root = body.resolve(root.operands[0])
            if root.opcode != "dynamic-update-slice":
                return None
        return self.refuse()


@dataclass(frozen=True, slots=True)
class CopyOutputs(Rule):
    id: ClassVar = "copy-fusion-outputs"

    limit: int = 96

    def check(self, fusion: MutableInstruction, copies: int) -> Decision | None:
        """Return the decision on ``copies``, the number of those that no other rule refuses."""
        outputs = copies + (len(fusion.fused.root.operands) if fusion.is_multi_output else 1)
        return self.refuse(outputs=outputs, limit=self.limit) if outputs > self.limit else None


GPU_COPY_FUSION: RuleBook[Rule] = RuleBook(
    "gpu-copy-fusion",
    "copy_fusion",
    "gpu",
    (
        CopiedFusion(),
        CopiedElementwise(),
        CopiedRoot(),
        CopiedLayout(),
        SharedMemoryBudget(),
        ReductionBudget(),
        OutputParameterBudget(),
        CopiedUpdate(),
        CopyOutputs(),
    ),
)
