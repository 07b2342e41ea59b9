"""Groups of operations that can be one kernel, found in the module before fusion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo import Module
from fusionscope.hlo.search import reachable

_MOVES = frozenset(
    """bitcast broadcast concatenate dynamic-slice iota pad reshape reverse slice
    transpose""".split()
)
_FREE = frozenset({"bitcast", "broadcast", "constant", "iota", "reshape"})
_FEWEST = 2  # operations that compute something


@dataclass(frozen=True, slots=True)
class Region:
    """Operations of one computation, by name, that can be one kernel. ``results`` of them are read
    outside. ``what`` describes it.
    """

    what: str
    members: tuple[str, ...]
    results: int


def find_regions(module: Module) -> Iterator[Region]:
    """Yield regions of each computation that runs instruction by instruction, the largest first.

    For each shape, these are all elementwise operations of that shape between which nothing else
    has to run: without and with the operations that only move data for them, or only compute what
    such operations move, and the connected parts of it.
    """
    regions: dict[tuple[str, ...], Region] = {}
    graph = MutableModule(module)
    for computation in walk_control_flow(graph):
        for members in _levels(computation):
            with_moves, with_parts = _with_moves(members), _with_producers(members)
            wholes = (members, with_moves, with_parts)
            for group in (*wholes, *(part for whole in wholes for part in _parts(whole))):
                whole = _with_consumers(group)
                for group_members in (group, whole):
                    region = _region(computation, group_members)
                    if region is not None:
                        regions.setdefault(tuple(sorted(region.members)), region)
    yield from sorted(regions.values(), key=lambda members: -len(members.members))


def _levels(computation: MutableComputation) -> Iterator[set[MutableInstruction]]:
    """Yield the elementwise operations of each shape, apart where one that has to run between them
    is of another kind; once with, and once without those between them that only move data.
    """
    order = computation.post_order()
    for shape in dict.fromkeys(
        instruction.shape.dimensions
        for instruction in order
        if is_elementwise(instruction) and not instruction.shape.is_tuple
    ):
        for passes_moves in (True, False):
            level: dict[MutableInstruction, int] = {}  # how many levels precede it
            groups: dict[int, set[MutableInstruction]] = defaultdict(set)
            inside: set[MutableInstruction] = set()
            for instruction in order:
                belongs = _belongs(instruction, shape)
                stays = belongs or (passes_moves and instruction.opcode in _MOVES)
                level[instruction] = max(
                    (level[o] + (o in inside and not stays) for o in instruction.operands),
                    default=0,
                )
                if stays:
                    inside.add(instruction)
                if belongs:
                    groups[level[instruction]].add(instruction)
            for members in groups.values():
                yield members | (between(members) if passes_moves else set())


def between(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return the operations that move data from some of ``members`` to others."""

    def reach(links: str) -> set[MutableInstruction]:
        moves = reachable(
            members, lambda step: [near for near in getattr(step, links) if near.opcode in _MOVES]
        )
        return {*moves} - members

    return reach("users") & reach("operands")


def _belongs(instruction: MutableInstruction, dimensions: tuple[int | None, ...]) -> bool:
    return (
        (is_elementwise(instruction) or instruction.opcode in ("broadcast", "iota"))
        and not instruction.shape.is_tuple
        and instruction.shape.dimensions == dimensions
        and instruction.opcode not in ("parameter", "get-tuple-element")
    )


def _with_moves(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the operations that move data or make constants only for them."""

    def joins(operand: MutableInstruction, extended: set[MutableInstruction]) -> bool:
        return operand.opcode in _MOVES | {"constant"} and _serves_only(operand, extended)

    return _extended(members, lambda member: member.operands, joins)


def _with_producers(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with what only they read, such as the computed parts of a concatenation.
    A concatenation that others read as well becomes a result.
    """

    def joins(operand: MutableInstruction, extended: set[MutableInstruction]) -> bool:
        return (
            (is_elementwise(operand) or operand.opcode in _MOVES | {"constant"})
            and operand.opcode not in ("parameter", "get-tuple-element")
            and _serves_only(operand, extended)
        )

    parts = {o for member in members for o in member.operands if _concatenates(o, member)}
    return _extended(members | parts, lambda member: member.operands, joins)


def _with_consumers(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the operations that move only what they compute."""

    def joins(user: MutableInstruction, extended: set[MutableInstruction]) -> bool:
        return user.opcode in _MOVES and extended.issuperset(user.operands)

    return _extended(members, lambda member: member.users, joins)


def _extended(
    members: set[MutableInstruction],
    neighbours: Callable[[MutableInstruction], Iterable[MutableInstruction]],
    joins: Callable[[MutableInstruction, set[MutableInstruction]], bool],
) -> set[MutableInstruction]:
    """Return ``members`` with those neighbours, and theirs, that join the members so far."""
    extended = set(members)
    pending = list(members)
    while pending:
        for neighbour in neighbours(pending.pop()):
            if neighbour not in extended and joins(neighbour, extended):
                extended.add(neighbour)
                pending.append(neighbour)
    return extended


def _serves_only(operand: MutableInstruction, members: set[MutableInstruction]) -> bool:
    is_read_inside = operand.opcode == "constant" or members.issuperset(operand.users)
    return is_read_inside and not operand.is_root


def _concatenates(producer: MutableInstruction, consumer: MutableInstruction) -> bool:
    return (
        producer.opcode == "concatenate" and producer.shape.dimensions == consumer.shape.dimensions
    )


def _parts(members: set[MutableInstruction]) -> Iterator[set[MutableInstruction]]:
    """Yield the connected parts, if there are several. Constants connect nothing."""
    import networkx  # imported here so that commands without regions do not wait for it

    links: networkx.Graph[MutableInstruction] = networkx.Graph()
    links.add_nodes_from(members)
    links.add_edges_from(
        (operand, member)
        for member in members
        for operand in member.operands
        if operand in members and not _is_free(operand)
    )
    # A constant belongs to those that read it.
    parts = [part for part in networkx.connected_components(links) if not all(map(_is_free, part))]
    for part in parts if len(parts) > 1 else ():
        yield with_constants(part) & members


def _is_free(value: MutableInstruction) -> bool:
    while value.opcode in ("broadcast", "reshape"):
        (value,) = value.operands
    return value.opcode in ("constant", "iota")


def with_constants(members: Iterable[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the constants that they read, in any shape."""
    return {*reachable(members, lambda reader: filter(_is_free, reader.operands))}


def _region(computation: MutableComputation, members: set[MutableInstruction]) -> Region | None:
    """Return the region, or None if it computes too little, or its results differ in shape."""
    order = [instruction for instruction in computation.post_order() if instruction in members]
    for constant in reversed(order):  # constants for others only
        if _is_free(constant) and members.isdisjoint(constant.users):
            members = members - {constant}
    if sum(member.opcode not in _FREE for member in members) < _FEWEST:
        return None
    results = [
        member
        for member in members
        if not _is_free(member)
        and (member.is_root or any(user not in members for user in member.users))
    ]
    if not results or len({result.shape.dimensions for result in results}) > 1:
        return None
    order = [instruction for instruction in order if instruction in members]
    sizes = ",".join(map(str, results[0].shape.dimensions))
    results_text = "1 result" if len(results) == 1 else f"{len(results)} results"
    words = f"{len(order)} operations up to {order[-1].name}, {results_text} of [{sizes}]"
    return Region(words, tuple(instruction.name for instruction in order), len(results))
