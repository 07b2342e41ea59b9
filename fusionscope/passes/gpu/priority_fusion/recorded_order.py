"""What a replay of priority fusion may take from the compiler's record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fusionscope.gpu.cost.model import Estimate


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


@dataclass(frozen=True, slots=True)
class RecordedScore:
    """One score of a producer. ``estimate`` is None if the record rounds it too far to tell the
    ticks; both of its times may be differences to earlier ones.
    """

    is_refused: bool
    estimate: Estimate | None


RecordedScores: TypeAlias = Mapping[tuple[str, int], RecordedScore]
"""The first, second, ... score of each producer, by the name that it grew from."""


class RecordDiffers(Exception):
    """A replay that takes scores from a record came to something that the record does not have."""
