"""Determines whether a fusion is a loop fusion or an input fusion, named after its
root's emitter.

Source of all: xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody, part_roots
from fusionscope.gpu.cost.model import is_input_reduction
from fusionscope.gpu.emitters import Emitters
from fusionscope.gpu.state import is_fusion, is_scatter
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_fusible


def choose_kind(
    producer: MutableInstruction, consumer: MutableInstruction, device: Device, emitters: Emitters
) -> str:
    """Return the kind of a new fusion of two, which may be the same. Source: ChooseFusionKind."""
    ends = (consumer, producer) if emitters.looks_at_producers else (consumer,)
    is_input = any(is_input_fusible(end, device, emitters) for end in ends)
    return "kInput" if is_input else "kLoop"


def is_input_fusible(instruction: MutableInstruction, device: Device, emitters: Emitters) -> bool:
    """Source: IsInputFusible."""
    return is_fusible(instruction) and (
        is_input_reduction(instruction, device, emitters)
        or is_scatter(instruction)
        or is_input_transpose(instruction, emitters)
    )


def is_input_transpose(instruction: MutableInstruction, emitters: Emitters) -> bool:
    """Return whether an instruction is a tiled transpose, or a fusion with one among
    its outputs.

    Source: IsInputFusibleTranspose.
    """
    if not is_fusion(instruction):
        return emitters.tiled_transpose(instruction) is not None
    body = FusionBody(instruction)
    return not instruction.is_custom_fusion and any(
        emitters.tiled_transpose(emitters.find_hero(body, root)) for root in part_roots(instruction)
    )
