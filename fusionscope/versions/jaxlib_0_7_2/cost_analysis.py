"""The bytes of instructions, as the GPU cost model counted them in jaxlib 0.7.2.

Source: xla/service/gpu/model/gpu_hlo_cost_analysis.cc, HandleReduceWindow, of September 2025.
"""

from __future__ import annotations

from fusionscope.gpu.cost.analysis import CostAnalysis, shape_bytes
from fusionscope.gpu.cost.fusion_walk import Costs
from fusionscope.gpu.cost.numbers import f32
from fusionscope.graph.mutable import MutableInstruction


class CostAnalysisOfPointers(CostAnalysis):
    """A reduction over windows of several arrays writes pointers to its results, by its count."""

    def _reduce_window(self, instruction: MutableInstruction, costs: Costs) -> None:
        super()._reduce_window(instruction, costs)
        costs.output_bytes = f32(shape_bytes(instruction.shape))
