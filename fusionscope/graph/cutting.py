"""Cuts instructions out of a module."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo.shape import TUPLE, Shape

_COPIED = frozenset({"broadcast", "constant", "iota", "tuple"})


def keep_only(
    graph: MutableModule,
    members: set[MutableInstruction],
    computation: MutableComputation | None = None,
    name: str = "region",
) -> dict[MutableInstruction, MutableInstruction]:
    """Make ``members``, which are in ``computation`` of ``graph``, or else in its entry, all of its
    entry. What they read of the rest are its parameters, what the rest reads of them its results.
    Return the clones that are in the entry now.
    """
    old, new = computation or graph.entry, graph.add_computation(name)
    clones: dict[MutableInstruction, MutableInstruction] = {}
    order = old.post_order()
    included = _copied(order, members)
    for instruction in order:
        if instruction in included:
            operands = [clones[operand] for operand in instruction.operands]
            clones[instruction] = clone_into(instruction, new, operands)
        elif any(user in included for user in instruction.users):
            clones[instruction] = new.make_parameter(instruction.shape)
            clones[instruction].origin = instruction.origin
    tuples = {
        item for item in included if item.opcode == "tuple" and members.issuperset(item.users)
    }
    inside = members | tuples
    results = [member for member in order if member in members and _is_result(member, inside)]
    shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
    new.root = new.make("tuple", shape, [clones[result] for result in results])
    for instruction in old.instructions:
        for callee in instruction.called:
            callee.callers.pop(instruction, None)
    graph.entry = new
    graph.source = replace(graph.source, name=name, header="", frames=None)
    return clones


def with_elements(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the elements of their tuples."""
    elements = {
        user
        for member in members
        if member.shape.is_tuple
        for user in member.users
        if user.opcode == "get-tuple-element"
    }
    return {*members, *elements}


def _copied(
    order: Iterable[MutableInstruction], members: set[MutableInstruction]
) -> set[MutableInstruction]:
    """Return ``members`` and the constants that they read, in tuples and broadcasts as well."""
    included = set(members)
    for instruction in reversed(list(order)):
        if instruction.opcode in _COPIED and any(user in included for user in instruction.users):
            included.add(instruction)
    return included


def _is_result(member: MutableInstruction, members: set[MutableInstruction]) -> bool:
    return member.is_root or any(user not in members for user in member.users)
