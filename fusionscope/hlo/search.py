"""Searches through graphs and trees, of instructions, computations or whatever else has neighbours.

Explicit stacks: chains of operands are longer than Python's stack. What runs thousands of times a
command, as in `gpu/`, has its own loop instead: a call per node costs more than the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Tree = TypeVar("Tree")


def reachable(
    starts: Iterable[Node], neighbours: Callable[[Node], Iterable[Node]]
) -> Iterator[Node]:
    """Yield ``starts`` and all that they lead to, each once, the latest neighbour first.

    ``neighbours`` is called once for each node, after it was yielded, and may be a filter.
    """
    pending = list(dict.fromkeys(starts))
    visited = set(pending)
    while pending:
        node = pending.pop()
        yield node
        for neighbour in neighbours(node):
            if neighbour not in visited:
                visited.add(neighbour)
                pending.append(neighbour)


def post_order(
    starts: Iterable[Node], neighbours: Callable[[Node], Iterable[Node]]
) -> Iterator[Node]:
    """Yield what ``reachable`` yields, each after its neighbours, the first of them first."""
    pending = [(node, False) for node in reversed([*starts])]
    opened: set[Node] = set()
    while pending:
        node, is_done = pending.pop()
        if is_done:
            yield node
        elif node not in opened:
            opened.add(node)
            pending.append((node, True))
            pending += [(neighbour, False) for neighbour in reversed([*neighbours(node)])]


def unfold(starts: Iterable[Tree], children: Callable[[Tree], Iterable[Tree]]) -> Iterator[Tree]:
    """Yield the nodes of trees in the order in which they are written, parents first."""
    pending = [iter(starts)]
    while pending:
        for node in pending[-1]:
            yield node
            pending.append(iter(children(node)))
            break
        else:
            pending.pop()
