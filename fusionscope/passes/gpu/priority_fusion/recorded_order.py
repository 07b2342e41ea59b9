"""The order in which the compiler fused, where only its record shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordedOrder:
    """The orders that only a record shows, by the names that instructions grew from. ``producers``
    and ``pairs`` of producer and consumer map to the positions of their fusions in the record,
    ``scored`` to that of the first, second, ... time a producer was scored.

    The compiler scores several producers concurrently, and reuses the tiling of one pair for every
    pair that it considers the same.
    """

    producers: Mapping[str, int]
    pairs: Mapping[tuple[str, str], int]
    scored: Mapping[tuple[str, int], int]
