"""Wraps unfused operations, for GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.passes.fusion_pass import FusionPass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableInstruction, MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan


class Pass(FusionPass):
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        from fusionscope.gpu.kinds import choose_kind
        from fusionscope.passes.wrapper import FusionWrapper

        target = context.target

        def kind_of(instruction: MutableInstruction) -> str:
            return choose_kind(instruction, instruction, target.device, target.gpu_model.emitters)

        return FusionWrapper(graph, self.book, kind_of).run()
