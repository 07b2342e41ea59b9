"""Finds the instructions that a pass put in the place of others, by what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusionscope.history.operations import NOTHING_COMPUTED
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.search import reachable
from fusionscope.hlo.views import COPIES

_MOVES = frozenset({"copy", "transpose"})
_Places = Iterable[tuple[Instruction, Instruction]]


def replacements(before: Iterable[Computation], after: Module) -> dict[str, Instruction]:
    """Return instructions of the computations ``before`` by the names of those of ``after`` that
    took their place.

    An instruction that kept its name and reads a new operand shows which one that replaces. If
    both do the same, their operands correspond too.
    """
    old = {
        instruction.name: instruction
        for computation in before
        for instruction in computation.instructions
    }
    places = {
        statement.name: computation
        for computation in after.computations
        for statement in computation.body.written
    }
    needed_by: dict[Computation, set[Instruction]] = {}
    replaced: dict[str, Instruction | None] = {}
    pending = list(_operands_that_changed(old, after))
    while pending:
        new, earlier = _past_differences(*pending.pop())
        if new.name in old or not _may_replace(new, earlier):
            continue
        place = places.get(earlier.name)
        if place is not None:  # a pass leaves what it replaced for a later one to remove
            if place not in needed_by:
                needed_by[place] = set(reachable([place.root], lambda value: value.operands))
            if place.instruction(earlier.name) in needed_by[place]:
                continue
        if new.name in replaced:
            if replaced[new.name] is not earlier:
                replaced[new.name] = None  # two places contradict each other
            continue
        replaced[new.name] = earlier
        computing = new.operands[0] if new.opcode == "get-tuple-element" else new
        if computing.opcode in (earlier.opcode, "custom-call"):
            pending += paired_operands(computing, earlier)
    return {name: earlier for name, earlier in replaced.items() if earlier is not None}


def _operands_that_changed(
    old: dict[str, Instruction], after: Module
) -> Iterator[tuple[Instruction, Instruction]]:
    """Yield operands of instructions that kept their names, new and old."""
    for computation in after.computations:
        for statement in computation.body.written:
            earlier = old.get(statement.name)
            if (
                earlier is not None
                and earlier.statement.inside != statement.inside
                and earlier.opcode == statement.opcode
            ):
                yield from paired_operands(computation.instruction(statement.name), earlier)


def _may_replace(new: Instruction, old: Instruction) -> bool:
    """Return whether a new operand may be an old one, perhaps in another precision."""
    if new.opcode == "parameter" or old.opcode == "parameter":
        return False
    if new.opcode == "constant" and new.literal != old.literal:
        return False
    if not (new.shape.is_array and old.shape.is_array):
        return new.opcode == old.opcode and len(new.shape.elements) == len(old.shape.elements)
    return new.shape.element_count == old.shape.element_count and (
        new.shape.element_type == old.shape.element_type or new.opcode == old.opcode
    )


def _past_differences(new: Instruction, old: Instruction) -> tuple[Instruction, Instruction]:
    """Return the first two behind reshapes and conversions that may correspond."""
    new, old = past_bitcasts(new), past_bitcasts(old)
    if new.opcode == "copy" and old.opcode not in _MOVES:
        new = past_bitcasts(new.operands[0])
    elif old.opcode == "copy" and new.opcode not in _MOVES:
        old = past_bitcasts(old.operands[0])
    if new.opcode == "convert" != old.opcode:
        source = past_bitcasts(new.operands[0])
        new = source if source.opcode == old.opcode else new
    elif old.opcode == "convert" != new.opcode:
        source = past_bitcasts(old.operands[0])
        old = source if source.opcode == new.opcode else old
    return new, old


def past_bitcasts(instruction: Instruction) -> Instruction:
    """Return what a bitcast or reshape, or an element of a tuple, shows."""
    while True:
        operands = instruction.operands
        if instruction.opcode in ("bitcast", "reshape"):
            instruction = operands[0]
        elif instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            instruction = operands[0].operands[int(instruction.attributes["index"])]
        else:
            return instruction


def past_views(instruction: Instruction) -> Instruction:
    """Return what a bitcast, reshape or copy, or several of them, have the elements of."""
    while instruction.opcode in COPIES:
        instruction = instruction.operands[0]
    return instruction


def paired_operands(new: Instruction, old: Instruction) -> _Places:
    """Return the operands of two instructions that do the same."""
    ours, theirs = new.operands, old.operands
    if len(ours) != len(theirs):
        return ()
    orders = [theirs]
    if len(theirs) == 2:
        orders.append(theirs[::-1])  # the operands of a dot may be swapped
    fitting = max(orders, key=lambda order: sum(map(stands_for, ours, order)))
    return zip(ours, fitting, strict=True)


def stands_for(new: Instruction, old: Instruction) -> bool:
    """Return whether one instruction may be a rewriting of the other, by itself."""
    new, old = past_views(new), past_views(old)
    return (
        new.opcode == old.opcode
        and new.opcode not in NOTHING_COMPUTED
        and new.shape.element_count == old.shape.element_count
    )
