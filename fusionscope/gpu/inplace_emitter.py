"""Kernels that write only the part of a buffer that a dynamic-update-slice replaces.

Source: xla/codegen/ir_emission_utils.cc.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.gpu.body import FusionBody
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise


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
    return updates if all(_is_in_place(body, each, shape) for each in updates) else None


def _is_in_place(body: FusionBody, update: MutableInstruction, shape: object) -> bool:
    """Return whether the buffer of ``update`` has no other readers, or only ones that read the
    written part.
    """
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
    pending, seen = [buffer], {buffer, update}
    while pending:
        for user in _readers(body, pending.pop()):
            if (
                user.opcode == "dynamic-slice"
                and body.resolve(user.operands[0]) is target
                and user.shape == shape
            ):
                if user.shape.element_count != 1 and user.operands[1:] != update.operands[2:]:
                    return False
            elif user is not update and not (
                is_elementwise(user) or user.opcode in ("bitcast", "tuple")
            ):
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True


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
