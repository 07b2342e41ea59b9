"""The flops and bytes of instructions, as the GPU cost model counted them early in 2023.

Source: xla/service/gpu/gpu_hlo_cost_analysis.cc and xla/service/hlo_cost_analysis.cc of February
2023.
"""

from __future__ import annotations

from fusionscope.gpu.cost.analysis import CostAnalysis, shape_bytes
from fusionscope.gpu.cost.fusion_walk import Costs
from fusionscope.gpu.cost.numbers import f32, to_int64
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import leaves

_USUAL, _OF_TYPE = 3, {"f64": 10, "c128": 20}
# Flops per element, by operation and type.
_MEASURED: dict[str, dict[str, int]] = {
    "add": {"f64": 120, "c128": 240},
    "divide": {"s32": 80, "f64": 3200, "c128": 20000},
    "exponential": {"f64": 2200},
    "log": {"f32": 45, "f64": 1000},
    "multiply": {"f64": 120, "c128": 650},
    "power": {"f64": 11000, "c128": 28000},
    "rsqrt": {"f64": 900},
    "sqrt": {"f64": 1100, "c128": 25000},
    "tanh": {"f32": 30, "f64": 2000},
}
# Elementwise operations with one flop per element.
_SIMPLE = frozenset({"clamp", "compare", "convert", "reduce-precision", "select"})


class CostAnalysis2023(CostAnalysis):
    """The costs of instructions, from the few figures of that time."""

    def _single(self, instruction: MutableInstruction) -> Costs:
        costs = super()._single(instruction)
        shape, opcode = instruction.shape, instruction.opcode
        if opcode == "constant":
            costs.output_bytes = 0.0
        elif opcode == "concatenate":
            costs.flops = 0.0
        elif opcode == "broadcast":
            costs.operand_bytes[0] = f32(shape.element_count)  # elements, not bytes
        return costs

    def flops_of_elementwise(self, opcode: str, element_type: str) -> int:
        if opcode in _SIMPLE:
            return 1
        default = _USUAL if opcode in _MEASURED else _OF_TYPE.get(element_type, _USUAL)
        return _MEASURED.get(opcode, {}).get(element_type, default)

    def _reduce(self, instruction: MutableInstruction, costs: Costs) -> None:
        results = leaves(instruction.shape)[0].element_count
        reductions = instruction.operands[0].shape.element_count - results
        costs.flops = f32(self._flops_inside(instruction.called[0]) * f32(reductions))

    def _bytes_inside(self, instruction: MutableInstruction, share: float) -> int:
        return to_int64(f32(f32(shape_bytes(instruction.shape)) * share))
