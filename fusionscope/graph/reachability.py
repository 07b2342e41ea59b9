"""Which instructions of a computation depend on which.

Source: xla/hlo/analysis/hlo_reachability.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionscope.graph.mutable import MutableInstruction


class Reachability:
    """As it was when asked for: instructions in post-order, one bit each.

    Not networkx: passes ask about pair after pair, which it would walk the graph for each time, and
    the compiler goes on asking this one while the graph changes.
    """

    def __init__(self, post_order: Sequence[MutableInstruction]) -> None:
        self._bit = {each: 1 << index for index, each in enumerate(post_order)}
        self._group: dict[MutableInstruction, _Group] = {}
        for each in post_order:
            reached = self._bit[each]
            for earlier in (*each.operands, *each.predecessors):
                group = self._group[earlier]
                reached |= group.before
                group.dependents.append(each)
            self._group[each] = _Group(reached, [each], [])

    def reaches(self, start: MutableInstruction, end: MutableInstruction) -> bool:
        """Whether ``end`` is or depends on ``start``."""
        return bool(self._group[end].before & self._bit[start])

    def merge(self, one: MutableInstruction, other: MutableInstruction) -> None:
        """Counts the two as one: what depended on either depends on both, and on what these do.

        Source: UpdateReachabilityForMerge.
        """
        group, less = self._group[one], self._group[other]
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
            for each in pending.pop().dependents:
                later = self._group[each]
                # What already depends on all of it is followed by what does, too.
                if later.before | together != later.before:
                    later.before |= together
                    pending.append(later)


@dataclass(slots=True, eq=False)
class _Group:
    """Instructions that count as one: ``before`` are the bits of all that they depend on, and their
    own, ``dependents`` what reads one of them."""

    before: int
    members: list[MutableInstruction]
    dependents: list[MutableInstruction]
