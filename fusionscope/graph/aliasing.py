"""Determines which operands an instruction overwrites with its result.

Source: xla/hlo/analysis/alias_info.cc.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fusionscope.graph.mutable import MutableInstruction

_ALIASING = re.compile(r"\{([\d, ]*)\}:\s*\((\d+),\s*\{([\d, ]*)\}")


class InPlace(NamedTuple):
    """One aliasing: operand ``slot`` (its part at ``part``) becomes the part of the result at
    ``output``. ``part`` and ``output`` are indices into tuples, empty for arrays.
    """

    slot: int
    output: tuple[int, ...] = ()
    part: tuple[int, ...] = ()


def in_place_operands(instruction: MutableInstruction) -> list[InPlace]:
    """Source: GetInPlaceInputOutputPairs."""
    opcode = instruction.opcode
    if opcode == "dynamic-update-slice":
        return [InPlace(0)]
    if opcode == "scatter":
        return _one_to_one((len(instruction.operands) - 1) // 2)
    if opcode == "all-reduce-start":
        return _one_to_one(len(instruction.operands))
    if opcode in ("collective-permute", "collective-permute-start"):
        return _permuted(instruction)
    if opcode == "ragged-all-to-all":
        return [InPlace(1)]
    if opcode == "fusion":
        return _in_fusion(instruction) + _declared(instruction)
    if opcode in ("custom-call", "async-start"):
        return _declared(instruction)
    return []


def _one_to_one(count: int) -> list[InPlace]:
    return [InPlace(0)] if count == 1 else [InPlace(slot, (slot,)) for slot in range(count)]


def _permuted(instruction: MutableInstruction) -> list[InPlace]:
    """Return the aliasing of a collective permute of four operands, which writes into
    its second.
    """
    if len(instruction.operands) != 4:
        return []
    whole = (1,) if instruction.opcode == "collective-permute-start" else ()
    parts = range(len(instruction.operands[1].shape.elements))
    return [InPlace(1, whole), *(InPlace(1, (*whole, part), (part,)) for part in parts)]


def _declared(instruction: MutableInstruction) -> list[InPlace]:
    return read_aliasing(instruction.attributes.get("output_to_operand_aliasing", ""))


def read_aliasing(text: str) -> list[InPlace]:
    """Read ``{ {1}: (0, {}, may-alias) }``, the aliasing of an instruction's operands or a module's
    parameters.
    """
    return [
        InPlace(int(slot), _indices(output), _indices(part))
        for output, slot, part in _ALIASING.findall(text)
    ]


def _indices(text: str) -> tuple[int, ...]:
    return tuple(int(index) for index in text.split(",") if index.strip())


def _in_fusion(fusion: MutableInstruction) -> list[InPlace]:
    """Return the parameters that an in-place operation at the end of a fusion overwrites.

    Source: GetFusionInstructionInPlaceInputOutputPairs.
    """
    updates: list[InPlace] = []
    for output in leaf_indices(fusion):
        source, index = _follow(fusion.fused.root, output)
        for slot, at, part in in_place_operands(source):
            if at != index:
                continue
            buffer, part = _follow(source.operands[slot], part)
            if buffer.opcode == "fusion":
                for inner in in_place_operands(buffer):
                    if inner.output == part:
                        buffer, part = _follow(buffer.operands[inner.slot], inner.part)
                        break
            if buffer.opcode == "parameter":
                updates.append(InPlace(buffer.parameter_number, output, part))
    return updates


def leaf_indices(instruction: MutableInstruction) -> list[tuple[int, ...]]:
    return [index for index, part in instruction.shape.parts() if not part.is_tuple]


def follow_tuples(
    instruction: MutableInstruction, index: tuple[int, ...]
) -> tuple[MutableInstruction, tuple[int, ...]]:
    """Return the origin of the part of a value at ``index``, through tuples and then their
    elements.

    Source: FollowTupleIndirection.
    """
    while instruction.opcode == "tuple" and index:
        instruction, index = instruction.operands[index[0]], index[1:]
    while instruction.opcode == "get-tuple-element":
        index = (int(instruction.attributes.get("index", "0")), *index)
        instruction = instruction.operands[0]
    return instruction, index


def _follow(
    instruction: MutableInstruction, index: tuple[int, ...]
) -> tuple[MutableInstruction, tuple[int, ...]]:
    """Return the same, and then through bitcasts of arrays (FollowNoOpIndirection)."""
    instruction, index = follow_tuples(instruction, index)
    while not index and instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction, index
