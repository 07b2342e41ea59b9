"""Cuts out of a program what an edit changes, with what is around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fusionscope.advise.recipes.recipe import Recipe, apply_recipe, prepare
from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    to_module,
)
from fusionscope.hlo import Module
from fusionscope.hlo.shape import TUPLE, Shape

_NAME = "region"
_STEPS, _MOST_AROUND = 6, 80  # from a place of the edit, and instructions around one
_SMALL = 150  # instructions of a program that is compiled as a whole
# A kernel begins or ends with them, or they are no kernel at all.
_ENDS = frozenset(
    """call conditional convolution custom-call dot fft get-tuple-element parameter sort tuple
    while""".split()
)
_APART = frozenset({"conditional", "while"})  # what is in them is fused apart from the rest
_COPIED = frozenset({"broadcast", "constant", "iota", "tuple"})


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a program as a module of its own, ``before`` and ``after`` an edit. ``is_whole`` is
    whether it is all of the program. ``is_apart`` is whether the compiler fuses nothing else with
    what the edit changes: it is in loops that are there as a whole.
    """

    before: Module
    after: Module
    is_whole: bool
    is_apart: bool


def cut_region(recipe: Recipe, program: Module, backend: str) -> Region | None:
    """Return the region of all places of ``recipe`` in ``program``, the module that the compiler
    receives; None if the recipe fits nowhere, or not in the region alone.

    What a region reads of the rest are its parameters, what the rest reads of it its results.
    Raises ``UnusableInput`` if the module contradicts itself.
    """
    graph = prepare(program)
    sites = list(recipe.find(graph, backend))
    origins = {site.at.origin for site in sites}
    places = [place for site in sites for place in (site.at, *site.also)]
    is_whole = sum(1 for _ in graph.walk()) <= _SMALL
    tops = {_top(graph.entry, place) for place in places}
    is_apart = is_whole or all(top.opcode in _APART for top in tops)
    if places and not is_whole:
        _keep_only(graph, _around(graph.entry, places))
    before = to_module(graph)
    is_changed = False
    for site in list(recipe.find(graph, backend)):
        if site.at.parent is not None and site.at.origin in origins:
            site.rewrite()
            is_changed = True
    if not is_changed:
        return None
    remove_dead(graph)
    return Region(before, to_module(graph), is_whole, is_apart)


def whole_region(recipe: Recipe, program: Module, backend: str) -> Region | None:
    """Return all of ``program`` as the region of ``recipe``. Returns None and raises as
    ``cut_region`` does.
    """
    edited = apply_recipe(recipe, program, backend)
    # Without calls on both sides: where they are inlined, the compiler may merge other products.
    before = to_module(prepare(program))
    return Region(before, edited.module, True, True) if edited is not None else None


def _around(
    entry: MutableComputation, places: Iterable[MutableInstruction]
) -> set[MutableInstruction]:
    """Return the instructions of ``entry`` that hold ``places``, or are near one of them."""
    members: set[MutableInstruction] = set()
    for place in places:
        top = _top(entry, place)
        nearby = {top}
        if top is place:
            _grow(nearby)
        members |= nearby
    return _with_elements(members)


def _top(entry: MutableComputation, place: MutableInstruction) -> MutableInstruction:
    """Return the instruction of ``entry`` that is ``place`` or calls what it is in."""
    while place.computation is not entry:
        place = next(caller for caller in place.computation.callers if caller.parent is not None)
    return place


def _grow(members: set[MutableInstruction]) -> None:
    """Add what is a few steps away, up to where other kernels begin."""
    frontier = list(members)
    for _ in range(_STEPS):
        frontier = list(
            dict.fromkeys(
                neighbour
                for instruction in frontier
                for neighbour in (*instruction.operands, *instruction.users)
                if neighbour not in members and neighbour.opcode not in _APART
            )
        )
        if len(members) + len(frontier) > _MOST_AROUND:
            return
        members.update(neighbour for neighbour in frontier if not _is_boundary(neighbour))
        frontier = [neighbour for neighbour in frontier if neighbour.opcode not in _ENDS]


def _is_boundary(instruction: MutableInstruction) -> bool:
    """Return whether a region has a parameter or results of its own instead."""
    return instruction.opcode in ("get-tuple-element", "parameter") or (
        instruction.is_root and instruction.opcode == "tuple"
    )


def _with_elements(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the elements of their tuples."""
    elements = {
        user
        for member in members
        if member.shape.is_tuple
        for user in member.users
        if user.opcode == "get-tuple-element"
    }
    return {*members, *elements}


def _keep_only(graph: MutableModule, members: set[MutableInstruction]) -> None:
    """Make ``members``, which are in the entry of ``graph``, all of its entry."""
    old, new = graph.entry, graph.add_computation(_NAME)
    clones: dict[MutableInstruction, MutableInstruction] = {}
    order = old.post_order()
    included = _copied(order, members)
    for instruction in order:
        if instruction in included:
            operands = [clones[operand] for operand in instruction.operands]
            clones[instruction] = clone_into(instruction, new, operands)
        elif any(user in included for user in instruction.users):
            clones[instruction] = new.make_parameter(instruction.shape)
    results = [member for member in order if member in members and _is_result(member, members)]
    shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
    new.root = new.make("tuple", shape, [clones[result] for result in results])
    for instruction in old.instructions:
        for callee in instruction.called:
            callee.callers.pop(instruction, None)
    graph.entry = new
    graph.source = replace(graph.source, name=_NAME, header="", frames=None)


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
