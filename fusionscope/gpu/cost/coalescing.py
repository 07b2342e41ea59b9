"""Determines whether a kernel reads adjacent elements.

Source: xla/service/gpu/model/coalescing_analysis.cc, the heuristic; xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape


def spoils_coalescing(instruction: MutableInstruction) -> bool:
    """Return whether it transposes the minor dimension of more than a broadcast, maybe inside."""
    if not instruction.holds("copy", "transpose"):
        return False
    inside = instruction.fused.instructions if instruction.opcode == "fusion" else [instruction]
    return any(
        transposes_minor_dimension(instruction_inside)
        and not _is_broadcast(instruction_inside.operands[0])
        for instruction_inside in inside
    )


def transposes_minor_dimension(instruction: MutableInstruction) -> bool:
    """Return whether the contiguous dimensions before and after an instruction differ.

    Source: TransposesMinorDimension.
    """
    if instruction.opcode == "copy":
        source, result = instruction.operands[0].shape, instruction.shape
        return _minor_dimension(source) != _minor_dimension(result)
    if instruction.opcode != "transpose":
        return False
    source = instruction.operands[0].shape
    order, extents = minor_to_major(source), sizes(instruction.shape)
    permutation = instruction.attribute("dimensions")
    minor = next(
        (dimension for dimension in minor_to_major(instruction.shape) if extents[dimension] != 1),
        None,
    )
    return minor is not None and permutation[minor] != _minor_dimension(source, order)


def _minor_dimension(shape: Shape, order: tuple[int, ...] | None = None) -> int | None:
    """Return the contiguous dimension with more than one element."""
    extents = sizes(shape)
    return next(
        (dimension for dimension in order or minor_to_major(shape) if extents[dimension] > 1), None
    )


def _is_broadcast(instruction: MutableInstruction) -> bool:
    while instruction.opcode not in ("broadcast", "iota"):
        if len(instruction.operands) != 1 or not (
            instruction.opcode == "bitcast" or is_elementwise(instruction)
        ):
            return False
        instruction = instruction.operands[0]
    return True
