"""Replays the pass that makes copies of a fusion's results outputs of that fusion.

Source: xla/backends/gpu/transforms/copy_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.gpu.state import GpuState
from fusionscope.graph.fusing import add_element
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    replace_operand,
)
from fusionscope.graph.properties import has_side_effect
from fusionscope.hlo.shape import TUPLE, Shape
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.copy_fusion.rules import CopiedFusion, CopyOutputs
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, Rule, RuleBook, first_decision
from fusionscope.passes.state import FusionPair

# The instructions from a fusion to a copy of it, the copy last.
_Way = list[MutableInstruction]


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    return CopyFusion(graph, book, context.gpu_state()).run()


@dataclass(slots=True)
class CopyFusion:
    """The pass over the entry computation of ``graph``, with the rules of ``book``.

    A fusion absorbs its copies in the order of its users.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState

    def run(self) -> FusionPlan:
        rules = [rule for rule in self.book if isinstance(rule, GpuPairRule)]
        if self.book.find(CopiedFusion.id) is None:  # only this rule can absorb a copy
            rules.insert(0, CopiedFusion())
        limits = [rule for rule in self.book if isinstance(rule, CopyOutputs)]
        decisions: list[PairDecision] = []
        for producer in self.graph.entry.post_order():
            ways_taken: list[_Way] = []
            for way in list(_ways_to_copies(producer)):
                pair = FusionPair(producer, way[-1], way[0].operands.index(producer))
                refusal = first_decision(rule.check(pair, self.state) for rule in rules)
                if refusal is None:
                    ways_taken.append(way)
                else:
                    decisions.append(decided(pair.producer, pair.consumer, refusal))
            if ways_taken:
                refusal = first_decision(limit.check(producer, len(ways_taken)) for limit in limits)
                fusion = producer if refusal is None else None
                decisions += [
                    decided(producer, way[-1], refusal or NO_OBJECTION, fusion)
                    for way in ways_taken
                ]
                if refusal is None:
                    _take_in(producer, ways_taken)
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)


def _ways_to_copies(producer: MutableInstruction) -> Iterator[_Way]:
    """Yield paths to copies, through an element and a bitcast without other users."""
    if producer.opcode in ("bitcast", "get-tuple-element"):
        return
    for user in producer.users:
        way = [user]
        for between in ("get-tuple-element", "bitcast"):
            if way[-1].opcode == between and len(way[-1].users) == 1:
                way += way[-1].users
        if way[-1].opcode == "copy":
            yield way


def _take_in(fusion: MutableInstruction, ways: list[_Way]) -> None:
    """Make each copy a further output."""
    computation, fused = fusion.computation, fusion.fused
    root = fused.root
    is_tuple = root.opcode == "tuple"
    results = list(root.operands) if is_tuple else [root]
    first = len(results)
    for way in ways:
        inner = root
        for instruction in way:
            if instruction.opcode == "get-tuple-element":
                inner = root.operands[int(instruction.attributes["index"])]
            else:
                inner = fused.make(
                    instruction.opcode, instruction.shape, [inner], instruction.attributes_text
                )
        results.append(inner)
    fusion.shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
    fused.root = fused.make("tuple", fusion.shape, results)
    if is_tuple:
        fused.remove(root)
    else:
        element = add_element(fusion, 0)
        begun = {way[0] for way in ways}
        for user in list(fusion.users):
            if user is not element and user not in begun:
                replace_operand(user, fusion, element)
        if fusion.is_root:
            computation.root = element
    for index, way in enumerate(ways, first):
        computation.replace(way[-1], add_element(fusion, index))
        for unused in reversed(way[:-1]):
            if not (unused.users or unused.is_root or has_side_effect(unused)):
                computation.remove(unused)
