"""A kernel and the kernels around it, as a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from fusionscope.facts.result import KernelFacts, ModuleFacts, PairFacts
from fusionscope.grouping import grouped
from fusionscope.page.fusion_graph import FusionGraph, GraphStage, Place, ends_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """``graph`` has the operations of these kernels, and one stage, the final one. ``kernels`` are
    its kernels by their numbers, ``chosen`` the numbers of those that were asked for. ``refused``
    are the pairs that were not fused, by their edges in the graph.
    """

    graph: FusionGraph
    kernels: dict[int, KernelFacts]
    chosen: frozenset[int]
    refused: dict[tuple[int, int], PairFacts]


def find_neighbourhood(
    whole: FusionGraph, module: ModuleFacts, names: Set[str], radius: int
) -> Neighbourhood:
    """Return the kernels with these ``names``, those that make what they read and those that read
    what they make, ``radius`` kernels far. A constant outside of kernels is none.
    """
    by_name = {kernel.name: kernel for kernel in module.kernels}
    launched = {number for name, number in whole.kernels.items() if name in by_name}
    places = {place for place in whole.final_places() if place.kernel in launched}
    edges = whole.final_edges()
    centre = {number for name, number in whole.kernels.items() if name in names}
    makers: dict[int, set[int]] = defaultdict(set)
    holders: dict[int, set[int]] = defaultdict(set)
    for node, kernel, is_output in places:
        holders[node].add(kernel)
        if is_output:
            makers[node].add(kernel)
    before: dict[int, set[int]] = defaultdict(set)
    after: dict[int, set[int]] = defaultdict(set)
    for read, reader in edges:
        for kernel in holders[reader]:
            if kernel in holders[read] and (read, reader, kernel) not in whole.apart:
                continue
            for maker in makers[read] - {kernel}:
                before[kernel].add(maker)
                after[maker].add(kernel)
    shown_kernels = centre | _within(centre, before, radius) | _within(centre, after, radius)
    graph, numbers = _part(
        whole, [place for place in places if place.kernel in shown_kernels], edges
    )
    pairs_with_ends = zip(module.pairs, ends_of(whole, module.pairs), strict=True)
    refused = {
        (numbers[ends[0]], numbers[ends[1]]): pair
        for pair, ends in pairs_with_ends
        if pair.reason is not None and ends is not None and numbers.keys() >= set(ends)
    }
    return Neighbourhood(
        graph=graph,
        kernels={number: by_name[name] for name, number in graph.kernels.items()},
        chosen=frozenset(centre),
        refused={edge: refused[edge] for edge in graph.stages[0].edges_added if edge in refused},
    )


def _within(start: Iterable[int], linked: Mapping[int, Set[int]], radius: int) -> set[int]:
    members = reached = set(start)
    for _ in range(radius):
        reached = {
            neighbour for kernel in reached for neighbour in linked.get(kernel, ())
        } - members
        members = members | reached
    return members


def _part(
    whole: FusionGraph, places: Iterable[Place], edges: Iterable[tuple[int, int]]
) -> tuple[FusionGraph, dict[int, int]]:
    """Return the graph of ``places``, and its numbers of nodes by those of the whole graph."""
    numbers: dict[int, int] = {}
    places_kept = [
        place._replace(node=numbers.setdefault(place.node, len(numbers)))
        for place in sorted(places)
    ]
    kernels = {place.kernel for place in places_kept}
    between = [(numbers[a], numbers[b]) for a, b in edges if a in numbers and b in numbers]
    stage = GraphStage(
        label=whole.stages[-1].label,
        pass_name=whole.stages[-1].pass_name,
        added=tuple(places_kept),
        removed=(),
        edges_added=tuple(sorted(between)),
        edges_removed=(),
        names=(),
    )
    part = replace(
        whole,
        nodes=tuple(whole.nodes[node] for node in numbers),
        computations=tuple(whole.computations[node] for node in numbers),
        stages=(stage,),
        quiet=0,
        by_name={name: numbers[node] for name, node in whole.by_name.items() if node in numbers},
        halves={},
        kernels={name: number for name, number in whole.kernels.items() if number in kernels},
        apart=frozenset(
            (numbers[read], numbers[reader], kernel)
            for read, reader, kernel in whole.apart
            if read in numbers and reader in numbers
        ),
    )
    return part, numbers


class Edge(NamedTuple):
    """An operation in one kernel, and one that reads its value in the same kernel or another.
    ``refused`` is the pair if it was not fused.
    """

    read: Place
    reader: Place
    refused: PairFacts | None


def edges_of(neighbourhood: Neighbourhood) -> Iterator[Edge]:
    """Yield the edges between operations in kernels. A kernel that computes a value itself reads
    that of another only if the graph says so.
    """
    (stage,) = neighbourhood.graph.stages
    places = grouped((place.node, place) for place in stage.added)
    for read, reader in stage.edges_added:
        producers = {place.kernel: place for place in places[read]}
        outputs = [place for place in places[read] if place.is_output]
        for place in places[reader]:
            if (
                place.kernel in producers
                and (read, reader, place.kernel) not in neighbourhood.graph.apart
            ):
                yield Edge(producers[place.kernel], place, None)
                continue
            outside = next(
                (output_place for output_place in outputs if output_place.kernel != place.kernel),
                None,
            )
            if outside is not None:
                yield Edge(outside, place, neighbourhood.refused.get((read, reader)))
