"""How many bytes a module needs at each time, if buffers have the memory of others in turn.

Each byte counts once: a kernel that writes its result over an operand needs no memory of its own
for it. Gaps between buffers (fragmentation) do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from fusionscope.graph.live_ranges import BufferKind, BufferLife, LiveRanges, Place
from fusionscope.graph.mutable import MutableInstruction

Sharing: TypeAlias = Callable[[MutableInstruction, MutableInstruction, tuple[int, ...]], bool]
"""Whether a user may write its result, at an index, over an operand that nothing reads later."""

_NONE: tuple[()] = ()


def count_live(ranges: LiveRanges, may_share: Sharing, *, as_scheduled: bool = False) -> list[int]:
    """Return the bytes alive at each time from 0 to the end of the program.

    The compiler writes temporaries over each other, and over outputs. While it looks for an order
    (``as_scheduled``), it does not tell them apart.
    """
    reuse = _Reuse(ranges, may_share)
    buffers = ranges.distinct_buffers()
    if as_scheduled:
        reuse.share_with_operands(buffers)
    else:
        reuse.share_with_operands(reuse.share_with_outputs(buffers))
    changes = [0] * (ranges.length + 3)
    for buffer in buffers:
        end = -1
        for first, last in sorted(buffer.ranges):
            if last > end:
                changes[max(first, end + 1)] += buffer.size
                changes[last + 1] -= buffer.size
                end = last
        for time, size in reuse.taken[buffer].items():
            changes[time] -= size
            changes[time + 1] += size
    return list(accumulate(changes))[: ranges.length + 1]


class _Reuse:
    """``taken`` are the bytes of buffers that others take over, by the time at which a value is
    read for the last time.
    """

    def __init__(self, ranges: LiveRanges, may_share: Sharing) -> None:
        self.ranges, self.values = ranges, ranges.values
        self.may_share = may_share
        self.taken: dict[BufferLife, dict[int, int]] = defaultdict(dict)

    def share_with_outputs(self, buffers: Iterable[BufferLife]) -> list[BufferLife]:
        """Let temporaries have the memory of outputs while these are not alive, the largest first.
        Return the other temporaries.

        Source: xla/service/buffer_assignment.cc, AssignSingleHloBuffer.
        """
        places = self._places()
        order = sorted(
            buffers,
            key=lambda life: (
                -life.size,
                life.kind is BufferKind.TEMPORARY,
                min(places[value.maker] for value in life.makers),
            ),
        )
        shared = [[life] for life in order if life.kind is BufferKind.DONATED]
        unshared: list[BufferLife] = []
        for buffer in order:
            is_output = buffer.kind is BufferKind.OUTPUT
            if buffer.makers[0].shape.is_tuple or not (
                is_output or buffer.kind is BufferKind.TEMPORARY
            ):
                continue
            for lives in reversed(shared):
                # An output has memory of its exact size.
                fits = buffer.size == lives[0].size if is_output else buffer.size <= lives[0].size
                if fits and self._share(buffer, lives):
                    lives.append(buffer)
                    break
            else:
                if is_output:
                    shared.append([buffer])
                else:
                    unshared.append(buffer)
        return unshared

    def share_with_operands(self, buffers: Iterable[BufferLife]) -> None:
        """Let results have the memory of operands that nothing reads later.

        Source: xla/service/heap_simulator/heap_simulator.cc, RunComputation.
        """
        single = [buffer for buffer in buffers if len(buffer.makers) == 1]
        ending: dict[int, dict[BufferLife, None]] = defaultdict(dict)
        for buffer in single:
            ending[buffer.last][buffer] = None
        for buffer in sorted(single, key=lambda life: (life.first, life.last)):
            user, index = buffer.makers[0]
            if not ending[buffer.first] or user.opcode == "copy":
                continue
            for operand in user.operands:
                value = self.values.made_at(Place(operand))
                old = self.ranges.buffers[value]
                if (
                    old is not buffer
                    and old in ending[buffer.first]
                    and value.maker.users.slots(user)
                    and self.may_share(value.maker, user, index)
                ):
                    self.taken[old][buffer.first] = min(old.size, buffer.size)
                    del ending[buffer.first][old]
                    break

    def _places(self) -> dict[MutableInstruction, int]:
        """Return where instructions are in the compiler's own walk through the module."""
        walk = (
            instruction
            for c in reversed(self.values.computations)
            for instruction in c.post_order()
        )
        return {instruction: place for place, instruction in enumerate(walk)}

    def _share(self, buffer: BufferLife, lives: Sequence[BufferLife]) -> bool:
        """Let a buffer have the memory of ``lives``, if it is never alive with one of them."""
        meetings: list[tuple[BufferLife, int]] = []
        for life in lives:
            meeting = self._meetings(buffer, life)
            if meeting is None:
                return False
            meetings += meeting
        for earlier, time in meetings:
            self.taken[earlier][time] = buffer.size
        return True

    def _meetings(
        self, first_life: BufferLife, second_life: BufferLife
    ) -> Sequence[tuple[BufferLife, int]] | None:
        """Return which of two buffers ends where the other one begins in its place, and when;
        nothing if they never meet, and None if both are alive at once.
        """
        if first_life.first > second_life.last or second_life.first > first_life.last:
            return _NONE
        meetings: list[tuple[BufferLife, int]] = []
        for value, (first, last) in zip(first_life.makers, first_life.ranges, strict=True):
            for place, (begin, end) in zip(second_life.makers, second_life.ranges, strict=True):
                if first > end or begin > last:
                    continue
                if last == begin and self._is_overwritten(value, place):
                    meetings.append((first_life, last))
                elif end == first and self._is_overwritten(place, value):
                    meetings.append((second_life, first))
                else:
                    return None
        return meetings

    def _is_overwritten(self, old: Place, new: Place) -> bool:
        user, index = new
        return user.opcode != "copy" and any(
            not part and view in user.operands and self.may_share(view, user, index)
            for view, part in self.values.made[old]
        )
