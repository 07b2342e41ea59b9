"""Replays the pass that splits concatenations of many arrays.

Source: xla/backends/gpu/transforms/variadic_op_splitter.cc.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.variadic_op_splitter.rules import SplitConcatenate
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_CASE, RuleBook


def run(graph: MutableModule, book: RuleBook[OperationRule], context: PassContext) -> FusionPlan:
    return VariadicOpSplitter(graph, book).run()


@dataclass(slots=True)
class VariadicOpSplitter:
    """The pass over ``graph``, with the rules of ``book``. Decisions say that a split concatenation
    became the one that replaced it.
    """

    graph: MutableModule
    book: RuleBook[OperationRule]

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        for computation in self.graph.post_order():
            for instruction in [] if computation.is_fused else list(computation.instructions):
                if instruction.opcode == "concatenate":
                    decisions.append(self._consider(instruction))
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def _consider(self, concatenate: MutableInstruction) -> PairDecision:
        for rule in self.book:
            decision = rule.check(concatenate)
            if decision is not None and isinstance(rule, SplitConcatenate):
                considered = decided(concatenate, concatenate, decision)
                last = _split(concatenate, max(rule.limit, 2))
                return considered._replace(fusion=last.name)
        return decided(concatenate, concatenate, NO_CASE)


def _split(concatenate: MutableInstruction, limit: int) -> MutableInstruction:
    """Source: SplitConcatenate."""
    operands = list(concatenate.operands)
    while len(operands) > 1:
        joined: list[MutableInstruction] = []
        for start in range(0, len(operands), limit):
            group = operands[start : start + limit]
            if start > 0 and len(group) < limit:
                joined += group  # one more full group in the next round
            else:
                joined.append(_join(concatenate, group))
        operands = joined
    concatenate.computation.replace(concatenate, operands[0])
    return operands[0]


def _join(concatenate: MutableInstruction, group: list[MutableInstruction]) -> MutableInstruction:
    computation, (dimension,) = concatenate.computation, concatenate.attribute("dimensions")
    sizes = list(concatenate.shape.dimensions)
    sizes[dimension] = sum(part.shape.dimensions[dimension] or 1 for part in group)
    shape = replace(concatenate.shape, dimensions=tuple(sizes))
    text = concatenate.attributes_text
    return computation.make("concatenate", shape, group, text, name=concatenate.name)
