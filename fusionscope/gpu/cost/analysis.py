"""Counts the flops and bytes of instructions and fusions, for the GPU cost model.

Source: xla/service/gpu/model/gpu_hlo_cost_analysis.cc on top of xla/service/hlo_cost_analysis.cc,
with count_multiple_input_accesses. The compiler's numbers are 32-bit floats, and rounded as such
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from fusionscope.gpu.cost.cycles import cycles_of
from fusionscope.gpu.cost.fusion_walk import Costs, FusionWalk
from fusionscope.gpu.cost.numbers import (
    f32,
    round_to_int64,
    wrap_int64,
)
from fusionscope.graph.layouts import sizes, transpose_is_bitcast
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.graph.properties import is_elementwise, leaves, same_but_for_type
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.window import WindowDimension, read_window

_COUNTED = (UNARY | BINARY | {"clamp", "select"}) - {"copy"}
_NOTHING = frozenset({"bitcast", "parameter"})
_POINTER = 8  # bytes

# One branch per element, and both branches if a warp crosses from one operand to the next.
_CONCATENATE_CYCLES, _CROSSED_CONCATENATE_CYCLES = 6, 400


@dataclass(slots=True, eq=False)
class FusionCosts(Costs):
    """The costs of a fusion, including how the instructions ``inside`` are read."""

    inside: FusionWalk = field(kw_only=True)


class CostAnalysis:
    """The costs of instructions, each computed once until it changes."""

    def __init__(
        self, architecture: str, *, sees_through_bitcasts: bool, rounds_products: bool
    ) -> None:
        """``architecture`` selects the cycles per operation, for example ``sm_90``."""
        self._architecture = architecture
        self._sees_through_bitcasts = sees_through_bitcasts
        self._rounds_products = rounds_products
        self._known: dict[MutableInstruction, Costs] = {}
        self._walks: dict[MutableInstruction, FusionWalk] = {}

    def of(self, instruction: MutableInstruction) -> Costs:
        costs = self._known.get(instruction)
        if costs is None:
            if instruction.opcode == "fusion":
                costs = self._fusion(instruction)
            else:
                costs = self._single(instruction)
            self._known[instruction] = costs
        return costs

    def of_fusion(self, fusion: MutableInstruction) -> FusionCosts:
        costs = self.of(fusion)
        assert isinstance(costs, FusionCosts), f"{fusion.name} is no fusion"
        return costs

    def forget(self, instruction: MutableInstruction) -> None:
        """Discard the costs of ``instruction``, which has changed."""
        self._known.pop(instruction, None)

    def forget_inside(self, fusion: MutableInstruction) -> None:
        """Discard the costs of ``fusion``, which is removed, and of all its instructions."""
        self._walks.pop(fusion, None)
        for inner in fusion.fused.instructions:
            self._known.pop(inner, None)

    def _single(self, instruction: MutableInstruction) -> Costs:
        shape, operands, opcode = instruction.shape, instruction.operands, instruction.opcode
        costs = Costs(
            0.0,
            f32(sum(shape_bytes(leaf) for leaf in leaves(shape))),
            [f32(shape_bytes(operand.shape)) for operand in operands],
            [1.0] * len(operands),
        )
        if opcode in _COUNTED:
            flops = self.flops_of_elementwise(opcode, shape.element_type)
            costs.flops = f32(flops * shape.element_count)
        elif opcode in _NOTHING or (
            opcode == "transpose"
            and transpose_is_bitcast(operands[0].shape, shape, instruction.attribute("dimensions"))
        ):
            costs.output_bytes = 0.0
            costs.operand_bytes = [0.0] * len(operands)
        elif opcode in ("slice", "dynamic-slice", "gather", "broadcast"):
            costs.operand_bytes[0] = f32(shape_bytes(shape))
            costs.utilization[0] = _ratio(shape.element_count, operands[0].shape.element_count)
        elif opcode == "dynamic-update-slice":
            update = f32(shape_bytes(operands[1].shape))
            elements = shape.element_count
            costs.output_bytes = costs.operand_bytes[1] = update
            costs.operand_bytes[0] = 0.0
            costs.utilization[0] = _ratio(elements - operands[1].shape.element_count, elements)
        elif opcode == "concatenate":
            costs.flops = f32(_concatenate_cycles(instruction) * shape.element_count)
        elif opcode == "tuple":
            costs.output_bytes = f32(shape_bytes(shape))
            costs.operand_bytes = [0.0] * len(operands)
        elif opcode == "sort":
            elements = operands[0].shape.element_count
            costs.flops = f32(elements * (elements - 1).bit_length())
        elif opcode == "reduce":
            self._reduce(instruction, costs)
        elif opcode == "reduce-window":
            self._reduce_window(instruction, costs)
        elif opcode == "scatter":
            self._scatter(instruction, costs)
        elif opcode == "map":
            costs.flops = f32(self._flops_inside(instruction.called[0]) * f32(shape.element_count))
        return costs

    def flops_of_elementwise(self, opcode: str, element_type: str) -> int:
        """Return the flops for one element of the result."""
        return cycles_of(self._architecture, opcode, element_type)

    def _flops_inside(self, computation: MutableComputation) -> float:
        """Return the flops of a computation on single elements, such as a reducer."""
        total = 0.0
        for inner in computation.post_order():
            total = f32(total + self.of(inner).flops)
        return total

    def _reduce(self, instruction: MutableInstruction, costs: Costs) -> None:
        inputs = len(instruction.operands) // 2
        results = leaves(instruction.shape)[0].element_count
        reductions = instruction.operands[0].shape.element_count - results
        costs.flops = f32(self._flops_inside(instruction.called[0]) * f32(reductions))
        for slot in range(inputs, len(instruction.operands)):
            size = shape_bytes(instruction.operands[slot].shape)
            costs.operand_bytes[slot] = f32(results * size)
            costs.utilization[slot] = f32(results)

    def _reduce_window(self, instruction: MutableInstruction, costs: Costs) -> None:
        window = read_window(instruction.attributes.get("window", "{}"))
        results = leaves(instruction.shape)[0].element_count
        source = instruction.operands[0].shape
        elements = math.prod(dimension.size for dimension in window)
        reductions = wrap_int64((elements - 1) * results)
        whole = _whole_dimension(instruction, window)
        if whole is not None:
            elements = whole
            reductions = results // elements + elements - 1
        costs.flops = f32(self._flops_inside(instruction.called[0]) * f32(reductions))
        costs.utilization[0] = _ratio(results * elements, source.element_count)
        costs.operand_bytes[0] = f32(wrap_int64(results * elements * -(-source.bits // 8)))

    def _scatter(self, instruction: MutableInstruction, costs: Costs) -> None:
        count = len(instruction.operands) // 2
        total = 0
        for slot in range(count):
            size = shape_bytes(instruction.operands[count + 1 + slot].shape)
            costs.operand_bytes[slot] = costs.operand_bytes[count + 1 + slot] = f32(size)
            total += size
        costs.output_bytes = f32(total)
        updates = instruction.operands[count + 1].shape.element_count
        costs.flops = f32(self._flops_inside(instruction.called[0]) * f32(updates))

    def _fusion(self, fusion: MutableInstruction) -> FusionCosts:
        """Source: HloCostAnalysis::HandleFusion and FusionCalculateUtilizations."""
        fused = fusion.fused
        outputs = fused.root.operands if fused.root.opcode == "tuple" else [fused.root]
        in_place = {output for output in outputs if output.opcode == "dynamic-update-slice"}
        inside = self._walks.get(fusion)
        if inside is None:
            inside = self._walks[fusion] = FusionWalk(
                fused, self.of, self._passes_elements_on, rounds_products=self._rounds_products
            )
        inside.update(in_place)
        costs = FusionCosts(inside.flops, 0.0, [], [], inside.ir_size, inside=inside)
        for output in outputs:
            stored = output.operands[1] if output in in_place else output
            for leaf in leaves(stored.shape):
                costs.output_bytes = f32(costs.output_bytes + f32(shape_bytes(leaf)))
        uses = inside.used
        for parameter in fused.parameters:
            costs.utilization.append(uses[parameter])
            read = sum(
                self._bytes_inside(reader, uses[reader]) for reader in _elements_read(parameter)
            )
            costs.operand_bytes.append(f32(read))
        return costs

    def _bytes_inside(self, instruction: MutableInstruction, share: float) -> int:
        """Source: GpuHloCostAnalysis::FusionParameterReadBytes."""
        return round_to_int64(f32(f32(shape_bytes(instruction.shape)) * share))

    def _passes_elements_on(self, instruction: MutableInstruction) -> bool:
        if instruction.opcode in ("tuple", "get-tuple-element") or is_elementwise(instruction):
            return True
        return (
            self._sees_through_bitcasts
            and instruction.opcode == "bitcast"
            and same_but_for_type(instruction.operands[0].shape, instruction.shape)
        )


def _elements_read(parameter: MutableInstruction) -> list[MutableInstruction]:
    """Return the users of each array of a parameter of a fusion, or the parameter itself if it is
    one array. For an array without users, return the users of the tuple that contains it.

    Source: HloCostAnalysis::FusionProcessOperandBytesRead.
    """
    readers: list[MutableInstruction] = []
    pending = [(parameter, parameter.shape)]
    while pending:
        reader, shape = pending.pop()
        if not shape.is_tuple:
            readers.append(reader)
        for index, element in enumerate(shape.elements):
            pending.append((_element_of(reader, index) or reader, element))
    return readers


def _element_of(reader: MutableInstruction, index: int) -> MutableInstruction | None:
    for user in reader.users:
        if user.opcode == "get-tuple-element" and int(user.attributes["index"]) == index:
            return user
    return None


@lru_cache(maxsize=4096)
def shape_bytes(shape: Shape) -> int:
    """Source: xla/service/gpu/gpu_compiler.h, ShapeSizeBytesFunction."""
    if shape.is_tuple:
        return _POINTER * len(shape.elements)
    return shape.byte_size


def _ratio(part: int, whole: int) -> float:
    return f32(part / whole) if whole else 0.0


def _concatenate_cycles(instruction: MutableInstruction) -> int:
    """Source: GpuHloCostAnalysis::HandleConcatenate."""
    dimension = instruction.attribute("dimensions")[0]
    first = sizes(instruction.operands[0].shape)[dimension]
    return _CROSSED_CONCATENATE_CYCLES if dimension > 0 and first & 31 else _CONCATENATE_CYCLES


def _whole_dimension(
    instruction: MutableInstruction, window: tuple[WindowDimension, ...]
) -> int | None:
    """Return the size of the dimension that a window reduces completely for each of its elements (a
    reduction and a broadcast), or None if the window does anything else.
    """
    reduced = [index for index, dimension in enumerate(window) if dimension.size != 1]
    padded = [dimension for dimension in window if dimension.low != 0 or dimension.high != 0]
    if len(reduced) != 1 or len(padded) != 1 or not instruction.shape.is_array:
        return None
    only, size = window[reduced[0]], sizes(instruction.shape)[reduced[0]]
    is_whole = only.low == only.high != 0 and only.size == 2 * only.low + 1
    return size if is_whole and only.low == size - 1 else None
