"""Cuts out of a program what a change concerns, with what is around it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from fusionscope.advise.recipes.recipe import Recipe, prepare
from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.cutting import keep_only, with_elements
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    to_module,
)
from fusionscope.graph.structures import Structures
from fusionscope.grouping import grouped
from fusionscope.hlo import Module
from fusionscope.hlo.search import reachable

_STEPS, _MOST_AROUND = 6, 80  # from a place of the edit, and instructions around one
_SMALL = 150  # instructions of a program that is compiled as a whole
# A kernel begins or ends with them, or they are no kernel at all.
_ENDS = frozenset(
    """call conditional convolution custom-call dot fft get-tuple-element parameter sort tuple
    while""".split()
)
_COPIED = frozenset({"broadcast", "constant", "iota"})  # each kernel has its own
_APART = frozenset({"conditional", "while"})  # what is in them is fused apart from the rest

_Places = tuple[MutableInstruction, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a program as a module of its own. The program has ``times`` equal ones."""

    module: Module
    times: int = 1


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of a program ``before`` and ``after`` an edit, of which there are ``times`` equal."""

    before: Module
    after: Module
    times: int = 1


@dataclass(frozen=True, slots=True)
class Region:
    """The parts of a program that recipes change. ``is_whole`` is whether there is one, which is
    all of the program. ``is_apart`` is whether the compiler fuses nothing else with what the edits
    change: it is in loops that are there as a whole.
    """

    edits: tuple[Edit, ...]
    is_whole: bool
    is_apart: bool

    @property
    def modules(self) -> list[Module]:
        return [module for edit in self.edits for module in (edit.before, edit.after)]


def cut_region(recipe: Recipe, program: Module, backend: str) -> Region | None:
    """Return the region of all places of ``recipe`` in ``program``, the module that the compiler
    receives; None if the recipe fits nowhere, or not in the region alone.

    What a region reads of the rest are its parameters, what the rest reads of it its results.
    Raises ``UnusableInput`` if the module contradicts itself.
    """
    return cut_together((recipe,), program, backend)


def cut_together(
    recipes: Sequence[Recipe], program: Module, backend: str, *, is_whole: bool = False
) -> Region | None:
    """Return the region of several recipes, which are applied in this order, all of the program if
    ``is_whole`` is set; None if one of them does not fit. Raises as ``cut_region`` does.
    """
    graph = prepare(program)
    sites = _sites(recipes, graph, backend)
    places = [place for site in sites for place in site]
    is_whole = is_whole or sum(1 for _ in graph.walk()) <= _SMALL
    is_apart = is_whole or all(_top(graph.entry, place).opcode in _APART for place in places)
    if is_whole:
        module = to_module(graph)
        cuts = [(_Cut(module, frozenset(place.name for place in places)), 1)]
    else:
        cuts = _distinct_cuts(graph, sites, _is_computed)
    edits, applied = [], set[str]()
    for cut, times in cuts:
        edited = prepare(cut.module)
        names = [recipe.id for recipe in recipes if _rewrite(recipe, edited, backend, cut.places)]
        remove_dead(edited)
        edits.append(Edit(cut.module, to_module(edited), times))
        applied.update(names)
    if any(recipe.id not in applied for recipe in recipes):
        return None
    return Region(tuple(edits), is_whole, is_apart)


def whole_region(recipe: Recipe, program: Module, backend: str) -> Region | None:
    """Return all of ``program`` as the region of ``recipe``. Returns None and raises as
    ``cut_region`` does.
    """
    return cut_together((recipe,), program, backend, is_whole=True)


def names_around(recipe: Recipe, program: Module, backend: str) -> frozenset[str]:
    """Return the names of the instructions of ``program`` that the region of ``recipe`` holds,
    those that its loops and branches call included. Raises as ``cut_region`` does.
    """
    graph = prepare(program)
    members = set[MutableInstruction]().union(
        *_groups(graph.entry, _sites((recipe,), graph, backend), _is_computed)
    )
    inside = reachable(
        members, lambda member: [inner for callee in member.called for inner in callee.instructions]
    )
    return frozenset(instruction.origin for instruction in inside) - {""}


def _sites(recipes: Sequence[Recipe], graph: MutableModule, backend: str) -> list[_Places]:
    """Return the instructions that the recipes change at each site, but for what they only read."""
    return [(s.at, *s.also) for recipe in recipes for s in recipe.find(graph, backend)]


def _rewrite(recipe: Recipe, graph: MutableModule, backend: str, origins: Collection[str]) -> bool:
    """Apply a recipe at the places of these ``origins``, and return whether there is any."""
    is_changed = False
    for site in list(recipe.find(graph, backend)):
        if site.at.parent is not None and site.at.origin in origins:
            site.rewrite()
            is_changed = True
    return is_changed


def cut_parts(graph: MutableModule, places: Collection[MutableInstruction]) -> list[Part]:
    """Return the parts of ``graph``, the result of ``prepare``, that hold ``places``, with what is
    around each, those near a common place as one; equal parts once. Raises ``UnusableInput`` if
    the module contradicts itself.
    """
    tops = {_top(graph.entry, place) for place in places}
    cuts = _distinct_cuts(graph, [(place,) for place in places], tops.__contains__)
    return [Part(cut.module, times) for cut, times in cuts]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A part of a program as a module, with the names in it of ``places``."""

    module: Module
    places: frozenset[str]


def _distinct_cuts(
    graph: MutableModule,
    sites: Iterable[_Places],
    is_shared: Callable[[MutableInstruction], bool],
) -> list[tuple[_Cut, int]]:
    """Return the parts of ``graph`` that hold ``sites``, with what is around each, as
    ``_groups`` does: equal ones once, and how many there are.
    """
    tops = {place: _top(graph.entry, place) for site in sites for place in site}
    groups = [with_elements(members) for members in _groups(graph.entry, sites, is_shared)]
    return [
        (_cut(graph, members, [place for place in tops if tops[place] in members]), 1 + len(equal))
        for members, *equal in _equal_groups(graph, groups)
    ]


def _equal_groups(
    graph: MutableModule, groups: list[set[MutableInstruction]]
) -> Iterable[list[set[MutableInstruction]]]:
    """Return ``groups``, equal ones together."""
    if len(groups) == 1:
        return [groups]
    structures = Structures(graph)
    return grouped((structures.of(members), members) for members in groups).values()


def is_small(program: Module, parts: Iterable[Part]) -> bool:
    """Return whether it is as little work to compile ``program`` as its ``parts``."""
    work = sum(part.module.instruction_count for part in parts)
    return program.instruction_count <= max(_SMALL, work)


def _groups(
    entry: MutableComputation,
    sites: Iterable[_Places],
    is_shared: Callable[[MutableInstruction], bool],
) -> list[set[MutableInstruction]]:
    """Return what is around the places of each site. Sites with an instruction in common that
    ``is_shared`` accepts are one group.
    """
    groups: list[set[MutableInstruction]] = []
    for tops in dict.fromkeys(frozenset(_top(entry, place) for place in site) for site in sites):
        members: set[MutableInstruction] = set()
        for top in tops:
            around = {top}
            if top.opcode not in _APART:
                _grow(around)
            members |= around
        near = [group for group in groups if any(map(is_shared, group & members))]
        groups = [group for group in groups if group not in near]
        groups.append(members.union(*near))
    return groups


def _is_computed(instruction: MutableInstruction) -> bool:
    return instruction.opcode not in _COPIED


def _cut(
    graph: MutableModule, members: set[MutableInstruction], places: Iterable[MutableInstruction]
) -> _Cut:
    """Return ``members``, which hold ``places``, as a module, and leave ``graph`` as it was."""
    entry = graph.entry
    clones = keep_only(graph, members)
    module = to_module(graph)
    graph.entry = entry
    return _Cut(module, frozenset(clones.get(place, place).name for place in places))


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
