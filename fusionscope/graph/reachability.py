"""Which instructions of a computation depend on which.

Source: xla/hlo/analysis/hlo_reachability.cc.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.graph.mutable import MutableInstruction


class Reachability:
    """As it was when asked for: instructions in post-order, one bit each.

    Not networkx: passes ask about pair after pair, which it would walk the graph for each time, and
    the compiler goes on asking this one while the graph changes.
    """

    def __init__(self, post_order: Sequence[MutableInstruction]) -> None:
        self._bit = {each: 1 << index for index, each in enumerate(post_order)}
        self._before: dict[MutableInstruction, int] = {}
        for each in post_order:
            reached = self._bit[each]
            for earlier in (*each.operands, *each.predecessors):
                reached |= self._before[earlier]
            self._before[each] = reached

    def reaches(self, start: MutableInstruction, end: MutableInstruction) -> bool:
        """Whether ``end`` is or depends on ``start``."""
        return bool(self._before[end] & self._bit[start])

    def merge(self, one: MutableInstruction, other: MutableInstruction) -> None:
        """Counts the two as one: what depended on either depends on both, and on what these do.

        Source: UpdateReachabilityForMerge.
        """
        both = self._bit[one] | self._bit[other]
        together = self._before[one] | self._before[other]
        for each, before in self._before.items():
            if before & both:
                self._before[each] = before | together
