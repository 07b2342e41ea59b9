"""Takes kernels apart that the compiler made before fusion, such as a scatter for a TPU."""

from __future__ import annotations

from fusionscope.graph.fusing import unpack
from fusionscope.graph.mutable import MutableInstruction, MutableModule

# They tell the compiler something about their operand, and no program can contain them.
_HINTS = frozenset({'"AssumeGatherIndicesInBound"', '"GatherScatterIndicesBitpacked"'})
_KERNELS = ("gather", "scatter")  # what such kernels are made for


def take_apart(graph: MutableModule) -> dict[MutableInstruction, MutableInstruction]:
    """Replace all fusions of ``graph`` by what is in them. Return for each the operation for which
    the compiler made it.
    """
    clones_by_origin: dict[MutableInstruction, MutableInstruction] = {}
    for computation in graph.post_order():
        for instruction in computation.post_order():
            if instruction.opcode == "fusion":
                inside = instruction.fused.root
                if inside.opcode == "parameter":  # a tile of an operand, within a Triton fusion
                    operand = instruction.operands[inside.parameter_number]
                    computation.replace(instruction, operand)
                    continue
                clones = unpack(instruction)
                computation.replace(instruction, clones[-1])
                kernels = (clone for clone in clones if clone.opcode in _KERNELS)
                clones_by_origin[instruction] = next(kernels, clones[-1])
                for clone in clones:
                    if clone is not clones_by_origin[instruction] and _changes_nothing(clone):
                        computation.replace(clone, clone.operands[0])
    return clones_by_origin


def _changes_nothing(instruction: MutableInstruction) -> bool:
    if instruction.opcode == "transpose":
        order = instruction.attribute("dimensions")
        return list(order) == sorted(order)
    if instruction.opcode in ("reshape", "slice"):
        return instruction.shape.dimensions == instruction.operands[0].shape.dimensions
    return instruction.attributes.get("custom_call_target") in _HINTS
