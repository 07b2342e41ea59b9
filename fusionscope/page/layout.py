"""Positions for the operations of a module: kernels are boxes in layers, operations rows in them.

All stages share the positions, so an operation keeps its place while kernels form around it. Boxes
are those of the final kernels, and one for each operation that no final kernel computes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.grouping import grouped
from fusionscope.page.fusion_graph import FusionGraph

_SWEEPS = 4  # down and up; more change little


class Spot(NamedTuple):
    """The position of an operation in a box, in rows and columns."""

    node: int
    box: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Box:
    """A kernel of the final stage by its number, None for an operation that no final kernel
    computes.

    Boxes of one ``layer`` stand side by side by ``order``; data flows to later layers.
    """

    kernel: int | None
    layer: int
    order: int


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: tuple[Box, ...]
    spots: tuple[Spot, ...]


def lay_out(*graphs: FusionGraph) -> Layout:
    """Return positions for all operations of all stages, in linear time but for sorting. Of several
    graphs of the same nodes, the kernels of the first count most.
    """
    edges = set().union(*(graph.all_edges() for graph in graphs))
    inside: dict[int, list[int]] = defaultdict(list)  # nodes by kernel
    makers: dict[int, list[int]] = defaultdict(list)  # boxes that write a node, by node
    holders: dict[int, list[int]] = defaultdict(list)
    kernels: dict[int | None, int] = {}  # boxes by kernel
    for graph in graphs:
        holder_set = frozenset(holders)
        for node, kernel, is_output in sorted(graph.final_places()):
            if node in holder_set:
                continue
            box = kernels.setdefault(kernel, len(kernels))
            inside[box].append(node)
            holders[node].append(box)
            if is_output:
                makers[node].append(box)
    owners: list[int | None] = list(kernels)
    for node in range(len(graphs[0].nodes)):
        if node not in holders:
            inside[len(owners)].append(node)
            holders[node] = [len(owners)]
            owners.append(None)
    between: dict[int, set[int]] = defaultdict(set)
    within: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for read, reader in edges:
        for box in holders[reader]:
            if box in holders[read] and (read, reader, owners[box]) not in graphs[0].apart:
                within[box].append((read, reader))
            else:
                between[box].update((makers.get(read) or holders[read])[:1])
    layers = _layers(range(len(owners)), between)
    orders = _orders(layers, between)
    boxes = tuple(Box(kernel, layers[box], orders[box]) for box, kernel in enumerate(owners))
    spots = [spot for box in range(len(owners)) for spot in _spots(box, inside[box], within[box])]
    return Layout(boxes, tuple(spots))


def _layers(items: Iterable[int], before: Mapping[int, set[int]]) -> dict[int, int]:
    """Return the layer of each item: behind all ``before`` it, and no earlier than its first
    reader needs. Edges that close a circle do not count.
    """
    indegrees = {item: len(before.get(item, ())) for item in items}
    after = grouped((previous, item) for item, earlier in before.items() for previous in earlier)
    layers = dict.fromkeys(indegrees, 0)
    ready = deque(item for item, count in indegrees.items() if count == 0)
    order: list[int] = []
    unplaced = deque(indegrees)
    while len(order) < len(indegrees):
        if not ready:  # a circle: the first that is left goes first
            while indegrees[unplaced[0]] <= 0:
                unplaced.popleft()
            ready.append(unplaced.popleft())
            indegrees[ready[0]] = 0
        item = ready.popleft()
        indegrees[item] = -1
        order.append(item)
        for reader in after[item]:
            if indegrees[reader] > 0:
                layers[reader] = max(layers[reader], layers[item] + 1)
                indegrees[reader] -= 1
                if indegrees[reader] == 0:
                    ready.append(reader)
    for item in reversed(order):
        readers = [layers[reader] for reader in after[item] if layers[reader] > layers[item]]
        if readers:
            layers[item] = min(readers) - 1
    return layers


def _orders(layers: Mapping[int, int], before: Mapping[int, set[int]]) -> dict[int, int]:
    """Return the position of each item in its layer: near those that it reads and is read by."""
    rows = grouped((layer, item) for item, layer in layers.items())
    after = grouped((previous, item) for item, earlier in before.items() for previous in earlier)
    where = {
        item: place / max(1, len(row)) for row in rows.values() for place, item in enumerate(row)
    }
    for sweep in range(_SWEEPS):
        linked: Mapping[int, Iterable[int]] = before if sweep % 2 == 0 else after
        for layer in sorted(rows, reverse=sweep % 2 == 1):
            row = rows[layer]
            means = {item: _mean(where, linked.get(item, ()), where[item]) for item in row}
            row.sort(key=means.__getitem__)
            for place, item in enumerate(row):
                where[item] = place / max(1, len(row))
    return {item: place for row in rows.values() for place, item in enumerate(row)}


def _mean(where: Mapping[int, float], items: Iterable[int], own_position: float) -> float:
    positions = [where[item] for item in items]
    return sum(positions) / len(positions) if positions else own_position


def _spots(box: int, nodes: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[Spot]:
    """Return the positions of the operations in a box."""
    before: dict[int, set[int]] = defaultdict(set)
    for read, reader in edges:
        before[reader].add(read)
    rows = _layers(nodes, before)
    columns = _orders(rows, before)
    return [Spot(node, box, rows[node], columns[node]) for node in nodes]
