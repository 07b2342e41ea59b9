"""Replays the fusion passes of the CPU compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.cpu.emitters import is_emitted_elementwise
from fusionscope.passes.cpu.instruction_fusion.expense import is_expensive
from fusionscope.passes.cpu.instruction_fusion.rules import (
    ExpensiveReuse,
    SkipCustom,
    SoftmaxCoupling,
    can_be_output_fused,
    find_skipping,
)
from fusionscope.passes.instruction_fusion import InstructionFusion, Judge
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.passes.state import FusionPair, FusionState, UnfusibleBy


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    state = FusionState(
        is_expensive=find_expense(book),
        may_duplicate=not context.has_multi_output,
        skipped=find_skipped(graph, find_skipping(book), emitters=context.has_emitters),
    )
    return CpuInstructionFusion(graph, book, state, context.deadline).run()


def find_expense(book: RuleBook[Rule]) -> Callable[[MutableInstruction], bool]:
    """Return what tells the operations that are too expensive to compute twice."""
    rule = book.find(ExpensiveReuse.id)
    return rule.is_expensive if isinstance(rule, ExpensiveReuse) else is_expensive


class CpuInstructionFusion(InstructionFusion):
    """Source: xla/service/cpu/cpu_instruction_fusion.cc."""

    @property
    def visits_embedded(self) -> bool:
        return find_skipping(self.book).visits_embedded

    def find_globally_unfusible(
        self, order: Sequence[MutableInstruction], judge: Judge
    ) -> dict[MutableInstruction, UnfusibleBy]:
        unfusible = InstructionFusion.find_globally_unfusible(self, order, judge)
        rule = self.book.find(SoftmaxCoupling.id)
        if isinstance(rule, SoftmaxCoupling) and self.state.may_duplicate:
            for producer in order:
                if producer not in unfusible and rule.keeps(producer):
                    unfusible[producer] = UnfusibleBy(rule.id)
        return unfusible

    def choose_kind(self, pair: FusionPair) -> str:
        return "kOutput" if can_be_output_fused(pair.producer, pair.consumer) else "kLoop"


def find_skipped(
    graph: MutableModule, rule: SkipCustom, *, emitters: bool = True
) -> frozenset[MutableInstruction]:
    """Return the instructions into which the pass fuses nothing, by ``rule``. ``emitters`` is
    whether the compiler uses fusion emitters.

    Source: ComputeInstructionsToSkip and BlockSubcomputationFusion.
    """
    skipped: set[MutableInstruction] = set()
    for instruction in graph.walk():
        if instruction.is_custom_fusion:
            skipped.add(instruction)
        elif instruction.opcode == "custom-call":
            for callee in instruction.called[: rule.skips_called]:
                skipped.update(callee.instructions)
        elif instruction.opcode == "scatter" or (
            emitters and rule.skips_emitted and is_emitted_elementwise(instruction.opcode)
        ):
            for callee in instruction.called:
                skipped.update(callee.instructions)
    return frozenset(skipped)
