"""Dependencies between the instructions of a computation.

Source: xla/hlo/analysis/hlo_reachability.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionscope.graph.mutable import MutableInstruction


class Reachability:
    """A snapshot of dependencies: instructions in post-order, one bit each.

    Not networkx: passes ask about many pairs, and it would walk the graph for each. The compiler
    also keeps using this snapshot while the graph changes.
    """

    def __init__(self, post_order: Sequence[MutableInstruction]) -> None:
        self._bit = {instruction: 1 << index for index, instruction in enumerate(post_order)}
        self._group: dict[MutableInstruction, _Group] = {}
        for instruction in post_order:
            reached = self._bit[instruction]
            for earlier in (*instruction.operands, *instruction.predecessors):
                group = self._group[earlier]
                reached |= group.before
                group.dependents.append(instruction)
            self._group[instruction] = _Group(reached, [instruction], [])

    def reaches(self, start: MutableInstruction, end: MutableInstruction) -> bool:
        """Return whether ``end`` is or depends on ``start``."""
        return bool(self._group[end].before & self._bit[start])

    def merge(self, first: MutableInstruction, second: MutableInstruction) -> None:
        """Treat the two as one: everything that depended on either depends on both and on their
        operands.

        Source: UpdateReachabilityForMerge.
        """
        group, less = self._group[first], self._group[second]
        if group is less:
            return
        if len(group.members) < len(less.members):
            group, less = less, group
        together = group.before | less.before
        group.members += less.members
        group.dependents += less.dependents
        self._group.update(dict.fromkeys(less.members, group))
        group.before = together
        pending = [group]
        while pending:
            for dependent in pending.pop().dependents:
                later = self._group[dependent]
                # If a group already depends on all of it, so do its dependents.
                if later.before | together != later.before:
                    later.before |= together
                    pending.append(later)


@dataclass(slots=True, eq=False)
class _Group:
    """Instructions that count as one. ``before`` holds the bits of all their dependencies and their
    own, ``dependents`` the instructions that read one of them.
    """

    before: int
    members: list[MutableInstruction]
    dependents: list[MutableInstruction]
