"""Groups of operations that can be one kernel, found in the module before fusion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
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
    found: dict[tuple[str, ...], Region] = {}
    graph = MutableModule(module)
    for computation in walk_control_flow(graph):
        for members in _levels(computation):
            with_moves, with_parts = _with_moves(members), _with_producers(members)
            wholes = (members, with_moves, with_parts)
            for group in (*wholes, *(part for each in wholes for part in _parts(each))):
                whole = _with_consumers(group)
                for each in (group, whole):
                    region = _region(computation, each)
                    if region is not None:
                        found.setdefault(tuple(sorted(region.members)), region)
    yield from sorted(found.values(), key=lambda each: -len(each.members))


def _levels(computation: MutableComputation) -> Iterator[set[MutableInstruction]]:
    """Yield the elementwise operations of each shape, apart where one that has to run between them
    is of another kind; once with, and once without those between them that only move data.
    """
    order = computation.post_order()
    for shape in dict.fromkeys(
        each.shape.dimensions for each in order if is_elementwise(each) and not each.shape.is_tuple
    ):
        for passes_moves in (True, False):
            level: dict[MutableInstruction, int] = {}  # how many levels precede it
            groups: dict[int, set[MutableInstruction]] = defaultdict(set)
            inside: set[MutableInstruction] = set()
            for each in order:
                belongs = _belongs(each, shape)
                stays = belongs or (passes_moves and each.opcode in _MOVES)
                level[each] = max(
                    (level[o] + (o in inside and not stays) for o in each.operands), default=0
                )
                if stays:
                    inside.add(each)
                if belongs:
                    groups[level[each]].add(each)
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


def _belongs(each: MutableInstruction, dimensions: tuple[int | None, ...]) -> bool:
    return (
        (is_elementwise(each) or each.opcode in ("broadcast", "iota"))
        and not each.shape.is_tuple
        and each.shape.dimensions == dimensions
        and each.opcode not in ("parameter", "get-tuple-element")
    )


def _with_moves(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the operations that move data or make constants only for them."""
    found = set(members)
    pending = list(members)
    while pending:
        for operand in pending.pop().operands:
            if (
                operand not in found
                and operand.opcode in _MOVES | {"constant"}
                and (operand.opcode == "constant" or set(operand.users) <= found)
                and not operand.is_root
            ):
                found.add(operand)
                pending.append(operand)
    return found


def _with_producers(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with what only they read, such as the computed parts of a concatenation.
    A concatenation that others read as well becomes a result.
    """
    found = {*members, *(o for each in members for o in each.operands if _concatenates(o, each))}
    pending = list(found)
    while pending:
        for operand in pending.pop().operands:
            if (
                operand not in found
                and (is_elementwise(operand) or operand.opcode in _MOVES | {"constant"})
                and operand.opcode not in ("parameter", "get-tuple-element")
                and (operand.opcode == "constant" or set(operand.users) <= found)
                and not operand.is_root
            ):
                found.add(operand)
                pending.append(operand)
    return found


def _concatenates(producer: MutableInstruction, consumer: MutableInstruction) -> bool:
    return (
        producer.opcode == "concatenate" and producer.shape.dimensions == consumer.shape.dimensions
    )


def _with_consumers(members: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the operations that move only what they compute."""
    found = set(members)
    pending = list(members)
    while pending:
        for user in pending.pop().users:
            if user not in found and user.opcode in _MOVES and _reads_only(user, found):
                found.add(user)
                pending.append(user)
    return found


def _reads_only(user: MutableInstruction, inside: set[MutableInstruction]) -> bool:
    return all(operand in inside for operand in user.operands)


def _parts(members: set[MutableInstruction]) -> Iterator[set[MutableInstruction]]:
    """Yield the connected parts, if there are several. What nothing but constants connects is
    apart.
    """
    import networkx  # imported here so that commands without regions do not wait for it

    links: networkx.Graph[MutableInstruction] = networkx.Graph()
    links.add_nodes_from(members)
    links.add_edges_from(
        (operand, each)
        for each in members
        for operand in each.operands
        if operand in members and not _is_free(operand)
    )
    # A constant belongs to those that read it.
    parts = [part for part in networkx.connected_components(links) if not all(map(_is_free, part))]
    for part in parts if len(parts) > 1 else ():
        yield with_constants(part) & members


def _is_free(each: MutableInstruction) -> bool:
    while each.opcode in ("broadcast", "reshape"):
        (each,) = each.operands
    return each.opcode in ("constant", "iota")


def with_constants(members: Iterable[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``members`` with the constants that they read, in any shape."""
    return {*reachable(members, lambda reader: filter(_is_free, reader.operands))}


def _region(computation: MutableComputation, members: set[MutableInstruction]) -> Region | None:
    """Return the region, or None if it computes too little, or its results differ in shape."""
    order = [each for each in computation.post_order() if each in members]
    for each in reversed(order):  # constants for others only
        if _is_free(each) and members.isdisjoint(each.users):
            members = members - {each}
    if sum(each.opcode not in _FREE for each in members) < _FEWEST:
        return None
    results = [
        each
        for each in members
        if not _is_free(each) and (each.is_root or any(user not in members for user in each.users))
    ]
    if not results or len({each.shape.dimensions for each in results}) > 1:
        return None
    order = [each for each in order if each in members]
    sizes = ",".join(map(str, results[0].shape.dimensions))
    counted = "1 result" if len(results) == 1 else f"{len(results)} results"
    words = f"{len(order)} operations up to {order[-1].name}, {counted} of [{sizes}]"
    return Region(words, tuple(each.name for each in order), len(results))
