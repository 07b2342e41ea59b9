"""The line of the user's program that an operation comes from."""

from __future__ import annotations

from fusionscope.facts.result import Operation
from fusionscope.hlo import Instruction, SourceLocation
from fusionscope.hlo.shape import Shape

# At most this many elements of a tuple are shown.
_MOST_ELEMENTS = 64

_NOT_THE_USERS = ("site-packages/", "dist-packages/", "jax/_src/", "/lib/python", "<frozen")


def operation_of(instruction: Instruction) -> Operation:
    metadata = instruction.metadata
    place = user_line(instruction.stack)
    return Operation(
        instruction.name,
        instruction.opcode,
        _shape_text(instruction.shape),
        metadata.get("op_name"),
        str(place) if place else None,
    )


def _shape_text(shape: Shape) -> str:
    """Cached: each of thousands of pairs may read the same tuple of thousands of elements."""
    if len(shape.elements) <= _MOST_ELEMENTS:
        return str(shape)
    first_elements = ", ".join(str(element) for element in shape.elements[:_MOST_ELEMENTS])
    return f"({first_elements}, … {len(shape.elements) - _MOST_ELEMENTS:,} more)"


def user_line(stack: tuple[SourceLocation, ...]) -> SourceLocation | None:
    """Return the innermost line of the user's own code, or any line if all are in libraries."""
    for place in stack:
        if not any(part in place.file for part in _NOT_THE_USERS):
            return place
    return stack[0] if stack else None
