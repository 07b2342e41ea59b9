"""How many bytes are alive at each place of a module's instruction sequence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from fusionscope.dump.buffer_assignment import BufferAssignment
from fusionscope.dump.live_ranges import LiveRanges, Position


@dataclass(frozen=True, slots=True)
class Span:
    """A value in memory: its bytes, and the first and the last place at which it is alive.

    ``handed`` are the values that begin in its memory at the last place, with the bytes that they
    have in common: an operation that works in place, the next step of a loop.
    """

    size: int
    first: int
    last: int
    handed: Mapping[Position, int] = field(default_factory=dict)

    @property
    def shared(self) -> int:
        """The bytes that are counted with another value at the last place."""
        return min(self.size, sum(self.handed.values()))


Spans = Mapping[Position, Span]


def count_live(spans: Iterable[Span], length: int) -> list[int]:
    """Return the bytes alive at each of the places from 0 to ``length``. Memory that two values
    share counts once.
    """
    return sum_up(changes_of(spans, length))


def changes_of(spans: Iterable[Span], length: int) -> list[int]:
    """Return by how many bytes more are alive at each place than at the one before."""
    changes = [0] * (length + 3)
    for span in spans:
        count(span, changes)
    return changes


def count(span: Span, changes: list[int], times: int = 1) -> None:
    """Add a value to ``changes``, or take it away if ``times`` is -1."""
    shared = span.shared
    changes[span.first] += times * span.size
    changes[span.last] -= times * shared
    changes[span.last + 1] -= times * (span.size - shared)


def sum_up(changes: list[int]) -> list[int]:
    """Return the bytes alive at each place."""
    return list(accumulate(changes))[:-2]


def spans_of(assignment: BufferAssignment, ranges: LiveRanges) -> dict[Position, Span]:
    """Return the values of all allocations that have a live range, those of fused computations do
    not.
    """
    spans: dict[Position, Span] = {}
    for allocation in assignment.allocations:
        values = [
            (*ranges.ranges[value.position], value)
            for value in allocation.values
            if value.position in ranges.ranges
        ]
        begins = defaultdict(list)
        for order, (first, last, value) in enumerate(values):
            begins[first].append((last, order, value))
        for order, (first, last, value) in enumerate(values):
            handed: dict[Position, int] = {}
            for other_last, other_order, next_value in begins[last]:
                is_later = (first, last, order) < (last, other_last, other_order)
                start = max(value.offset, next_value.offset)
                common = min(value.offset + value.size, next_value.offset + next_value.size) - start
                if next_value is not value and is_later and common > 0:
                    handed[next_value.position] = common
            spans[value.position] = Span(value.size, first, last, handed)
    return spans
