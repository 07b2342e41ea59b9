"""Kernels that write only the part of a buffer that a dynamic-update-slice replaces.

Source: xla/codegen/ir_emission_utils.cc.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.gpu.body import FusionBody
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape


def in_place_updates(
    body: FusionBody, roots: Sequence[MutableInstruction]
) -> list[MutableInstruction] | None:
    """Return the updates that such a kernel makes, or None if the body is not such a
    kernel.

    Source: IsDynamicUpdateSliceFusion and CanEmitFusedDynamicUpdateSliceInPlace.
    """
    updates: list[MutableInstruction] = []
    for root in roots:
        update = body.resolve(root.operands[0]) if root.opcode == "bitcast" else root
        if update.opcode != "dynamic-update-slice":
            return None
        updates.append(update)
    shape = body.operands(updates[0])[1].shape
    return updates if all(_is_in_place(body, update, shape) for update in updates) else None


def _is_in_place(body: FusionBody, update: MutableInstruction, shape: Shape) -> bool:
    """Return whether the buffer of ``update`` has only readers of the written part."""
    last = update
    while users := body.users(last):
        if len(users) > 1 or users[0].opcode != "bitcast":
            return False
        last = users[0]
    target = body.operands(update)[0]
    buffer = target
    if buffer in body and buffer.opcode == "bitcast":
        buffer = body.resolve(buffer.operands[0])
    if buffer in body or body.operands(update)[1].shape != shape:
        return False

    def reads_in_place(reader: MutableInstruction) -> bool:
        if (
            reader.opcode == "dynamic-slice"
            and body.resolve(reader.operands[0]) is target
            and reader.shape == shape
        ):
            return shape.element_count == 1 or reader.operands[1:] == update.operands[2:]
        return is_elementwise(reader) or reader.opcode in ("bitcast", "tuple")

    readers = reachable(
        [buffer], lambda value: [user for user in _readers(body, value) if user is not update]
    )
    return all(reader is buffer or reads_in_place(reader) for reader in readers)


def _readers(body: FusionBody, value: MutableInstruction) -> list[MutableInstruction]:
    """Return the users in the body of a value, which may come from outside."""
    if value in body:
        return body.users(value)
    return [
        reader
        for part in body.parts
        for slot, operand in enumerate(part.operands)
        if operand is value
        for reader in (part.fused.parameters[slot].users if part.opcode == "fusion" else [part])
    ]
