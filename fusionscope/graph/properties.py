"""Properties of single instructions that the compiler's passes ask for, on any backend.

Source: xla/hlo/ir/hlo_instruction.cc, hlo_instructions.cc and xla/shape_util.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from operator import attrgetter

from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo import Instruction
from fusionscope.hlo.attributes import read_slice
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.search import reachable, unfold
from fusionscope.hlo.shape import Shape

_ELEMENTWISE = UNARY | BINARY | {"clamp", "constant", "rng", "select"}
_SOME_ELEMENTWISE = frozenset({"bitcast-convert", "fusion", "map"})

_NEVER_FUSIBLE = frozenset({"call", "conditional", "domain", "parameter", "while"})
_ALWAYS_FUSIBLE = frozenset({"fusion", "map", "reduce", "reduce-window"})
_SIDE_EFFECTS = frozenset(
    """all-gather-done all-gather-start all-reduce-done all-reduce-start collective-broadcast
    collective-permute-done collective-permute-start infeed outfeed recv recv-done rng
    rng-get-and-update-state send send-done""".split()
)
_COLLECTIVES = frozenset({"all-gather", "all-reduce", "all-to-all", "reduce-scatter"})

# Instructions that call a computation that is not materialized. Source: xla/hlo/ir/hlo_opcode.cc,
# GetInstructionCallContext.
EMBEDDING = frozenset(
    """all-reduce all-reduce-start custom-call fusion map reduce reduce-scatter reduce-window scan
    scatter select-and-scatter sort""".split()
)

INTEGRAL = frozenset(f"{sign}{bits}" for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64))
COMPLEX = frozenset({"c64", "c128"})


def is_fusible(instruction: MutableInstruction) -> bool:
    """Source: HloInstruction::IsFusible."""
    opcode = instruction.opcode
    if opcode in _ALWAYS_FUSIBLE:
        return True
    if opcode == "rng":
        return len(instruction.users) <= 1
    return opcode not in _NEVER_FUSIBLE and not has_side_effect(instruction)


def has_side_effect(instruction: MutableInstruction) -> bool:
    """Source: HloInstruction::HasSideEffect."""
    if _has_own_side_effect(instruction):
        return True
    return bool(instruction.called) and any(
        _has_own_side_effect(inner)
        for computation in reachable(instruction.called, _called)
        for inner in computation.instructions
    )


def _called(computation: MutableComputation) -> Iterator[MutableComputation]:
    for instruction in computation.instructions:
        yield from instruction.called


def _has_own_side_effect(instruction: MutableInstruction) -> bool:
    opcode = instruction.opcode
    if opcode in _SIDE_EFFECTS:
        return True
    if opcode in _COLLECTIVES:
        return instruction.attribute("constrain_layout") is True
    if opcode == "custom-call":
        return instruction.attribute("custom_call_has_side_effect") is True
    return False


def is_elementwise(instruction: MutableInstruction) -> bool:
    """Source: HloInstruction::IsElementwise."""
    if instruction.opcode != "fusion":
        return is_one_elementwise(instruction)
    pending = [instruction]
    while pending:
        current = pending.pop()
        if current.opcode == "fusion":
            fused = current.fused
            opcodes = {opcode for opcode, count in fused.opcodes.items() if count}
            if not opcodes <= _ELEMENTWISE | _SOME_ELEMENTWISE | {"parameter"}:
                return False
            if opcodes & _SOME_ELEMENTWISE:
                pending.extend(
                    instruction
                    for instruction in fused.instructions
                    if instruction.opcode in _SOME_ELEMENTWISE
                )
        elif not is_one_elementwise(current):
            return False
    return True


def number_of(constant: Instruction | MutableInstruction) -> float | None:
    """Return the number that a constant is, None if it is not one real number."""
    try:
        return float(constant.literal or "")
    except ValueError:
        return None


def is_one_elementwise(instruction: Instruction | MutableInstruction) -> bool:
    """Return the same for an instruction that is not a fusion."""
    opcode = instruction.opcode
    if opcode == "bitcast-convert":
        return instruction.shape.bits == instruction.operands[0].shape.bits
    if opcode == "map":
        dimensions = instruction.attribute("dimensions")
        return not dimensions or dimensions == tuple(range(instruction.shape.rank))
    return opcode in _ELEMENTWISE


class Use(IntEnum):
    """How often an instruction reads the elements of an operand."""

    REUSE = 0
    USE = 1
    NONE = 2


_READS_ONCE = frozenset("bitcast concatenate gather reshape reverse slice transpose".split())


def operand_use(instruction: MutableInstruction, slot: int) -> Use:
    """Return how an instruction reads its operand ``slot``. Source: OperandElementUse and
    FusionReusesParamElements.
    """
    opcode = instruction.opcode
    if opcode == "fusion":
        return _parameter_use(instruction.fused, slot)
    if opcode in _READS_ONCE:
        return Use.USE
    if opcode == "pad":
        return Use.USE if slot == 0 else Use.REUSE
    if opcode == "reduce":
        return Use.USE if slot < len(instruction.operands) // 2 else Use.REUSE
    if opcode == "dot":
        second = instruction.operands[1 - slot] if len(instruction.operands) == 2 else None
        is_vector = instruction.shape.rank <= 1 and second is not None and second.shape.rank <= 1
        return Use.USE if is_vector else Use.REUSE
    if opcode == "dynamic-update-slice":
        return Use.USE if slot < 2 else Use.REUSE
    return Use.USE if is_elementwise(instruction) else Use.REUSE


def _parameter_use(fused: MutableComputation, number: int) -> Use:
    """Return how the root of a fusion reads a parameter, by the worst path between them."""
    uses: dict[MutableInstruction, Use] = {}
    parameter = fused.parameters[number]
    for instruction in fused.post_order():
        if instruction is parameter:
            uses[instruction] = Use.USE
            continue
        worst = Use.NONE
        for slot, operand in enumerate(instruction.operands):
            inner = uses[operand]
            if inner is not Use.NONE and worst is not Use.REUSE:
                use = operand_use(instruction, slot)
                if use is not Use.NONE:
                    worst = min(worst, use, inner)
        uses[instruction] = worst
    return uses[fused.root]


def is_effective_scalar(shape: Shape) -> bool:
    """Return whether an array has one element."""
    return shape.is_array and all(size == 1 for size in shape.dimensions)


def is_scalar_constant(instruction: MutableInstruction) -> bool:
    """Return whether an instruction is a constant of one element, or a broadcast of one."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" and is_effective_scalar(instruction.shape)


def true_rank(shape: Shape) -> int:
    """Return the number of dimensions other than 1."""
    return sum(size != 1 for size in shape.dimensions)


def leaves(shape: Shape) -> list[Shape]:
    """Return the arrays in a shape."""
    if shape.is_array:
        return [shape]
    return [part for part in unfold([shape], attrgetter("elements")) if part.is_array]


def slice_ranges(slice_: MutableInstruction) -> list[range]:
    """Return the sliced indices of each dimension, from start to limit in steps of the stride."""
    return read_slice(slice_.attributes["slice"])


def same_but_for_type(first: Shape, second: Shape) -> bool:
    """Return whether dimensions and layout are equal."""
    if first is second:
        return True
    pending = [(first, second)]
    while pending:
        a, b = pending.pop()
        if (a.dimensions, a.dynamic, a.layout, len(a.elements)) != (
            b.dimensions, b.dynamic, b.layout, len(b.elements)
        ):  # fmt: skip
            return False
        pending.extend(zip(a.elements, b.elements, strict=True))
    return True
