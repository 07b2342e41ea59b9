"""Replays the pass that wraps operations, for CPUs."""

from __future__ import annotations

from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.passes.wrapper import FusionWrapper


def run(graph: MutableModule, book: RuleBook[OperationRule], context: PassContext) -> FusionPlan:
    return FusionWrapper(graph, book).run()
