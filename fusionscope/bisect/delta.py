"""Delta debugging: the smallest part of a list that still passes a test.

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def minimize(items: Sequence[Item], test: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return a part of ``items`` that passes ``test`` and does not without any single one of its
    items. All ``items`` must pass, and none must not: neither is tested. The order is kept.

    A single item that passes takes about twice the binary logarithm of the number of items. A test
    that is true only for some of the parts that contain a passing part may make the result larger.
    """
    remaining, pieces = list(items), 2
    while len(remaining) > 1:
        chunks = _split(remaining, min(pieces, len(remaining)))
        smaller = next((chunk for chunk in chunks if test(chunk)), None)
        if smaller is not None:
            remaining, pieces = smaller, 2
            continue
        complements = (
            [item for item in remaining if item not in chunk] for chunk in map(set, chunks)
        )
        # With two chunks, the rest of one is the other.
        smaller = (
            next((complement for complement in complements if test(complement)), None)
            if pieces > 2
            else None
        )
        if smaller is not None:
            remaining, pieces = smaller, max(pieces - 1, 2)
        elif pieces >= len(remaining):
            break
        else:
            pieces *= 2
    return remaining


def _split(items: list[Item], count: int) -> list[list[Item]]:
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
