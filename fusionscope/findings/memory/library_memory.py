"""The arrays that a library may write to memory of its own, inside a call.

No file of a dump shows them. YNNPACK computes most of what is in a fusion tile by tile. Two kinds
of values it may write whole, all of it or a panel at a time:

- an operand of a sum of products, which it computes as a matrix product (``rewrite_sum_to_dot`` in
  ynnpack/subgraph/fusion.cc: 32-bit floats, one dimension, a factor that is broadcast);
- a value that is read again after a reduction of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.findings.memory.facts import CallMemory
from fusionscope.history.kernels import fusion_emitter
from fusionscope.hlo import Computation, Instruction, Module

_LIBRARY = "__ynn"
_VIEWS = frozenset({"bitcast", "broadcast", "copy", "reshape", "slice", "transpose"})
_GIVEN = frozenset({"constant", "iota", "parameter"})
_SUMMARIES = frozenset({"dot", "reduce", "reduce-window"})


def find_library_memory(final: Module) -> tuple[CallMemory, ...]:
    """Return the library calls of ``final`` that may write arrays of their own, those with most
    bytes first.
    """
    calls = []
    for instruction in final.walk():
        if instruction.opcode != "fusion" or not instruction.called:
            continue
        if not fusion_emitter(instruction.statement.attributes).startswith(_LIBRARY):
            continue
        values = dict.fromkeys(_written(instruction.called[0]))
        if values:
            calls.append(
                CallMemory(
                    call=instruction.name,
                    bytes=sum(value.shape.byte_size for value in values),
                    values=tuple(f"{value.name} {value.shape}" for value in values),
                )
            )
    return tuple(sorted(calls, key=lambda call: (-call.bytes, call.call)))


def _written(computation: Computation) -> Iterator[Instruction]:
    for instruction in computation.instructions:
        if instruction.opcode == "reduce":
            yield from _factors(instruction)
        elif instruction.opcode in _VIEWS | _GIVEN:
            continue
        if len(instruction.users) > 1 and _is_read_after_summary(instruction):
            yield instruction


def _factors(reduction: Instruction) -> Iterator[Instruction]:
    """Yield the operands of a sum of products that are computed in the fusion."""
    product = reduction.operands[0]
    if product.opcode != "multiply" or len(product.users) > 1 or len(reduction.operands) != 2:
        return
    is_sum = bool(reduction.called) and reduction.called[0].root.opcode == "add"
    summed = {int(dimension) for dimension in reduction.attribute("dimensions")}
    first, second = (_varying_dimensions(operand) for operand in product.operands)
    is_f32 = product.shape.element_type == "f32"
    if is_sum and is_f32 and len(summed) == 1 and summed <= first & second and first != second:
        yield from (
            source for source in map(_viewed, product.operands) if source.opcode not in _GIVEN
        )


def _varying_dimensions(value: Instruction) -> set[int]:
    """Return the dimensions along which the elements of ``value`` differ."""
    if value.opcode != "broadcast":
        return set(range(value.shape.rank))
    return {int(dimension) for dimension in value.attribute("dimensions")}


def _viewed(value: Instruction) -> Instruction:
    while value.opcode in _VIEWS:
        value = value.operands[0]
    return value


def _is_read_after_summary(value: Instruction) -> bool:
    """Return whether an operation reads ``value``, or what is computed from each of its elements,
    together with a reduction of it.
    """
    elementwise, summarized = {value}, set[Instruction]()
    for instruction in value.computation.instructions[value.index + 1 :]:
        reads_elements = not elementwise.isdisjoint(instruction.operands)
        reads_summary = not summarized.isdisjoint(instruction.operands)
        if reads_elements and reads_summary:
            return True
        if reads_summary or (reads_elements and instruction.opcode in _SUMMARIES):
            summarized.add(instruction)
        elif reads_elements:
            elementwise.add(instruction)
    return False
