"""Replays the pass that wraps operations, for GPUs."""

from __future__ import annotations

from fusionscope.gpu.kinds import choose_kind
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.passes.wrapper import FusionWrapper


def run(graph: MutableModule, book: RuleBook[OperationRule], context: PassContext) -> FusionPlan:
    target = context.target

    def kind_of(instruction: MutableInstruction) -> str:
        return choose_kind(instruction, instruction, target.device, target.gpu_model.emitters)

    return FusionWrapper(graph, book, kind_of).run()
