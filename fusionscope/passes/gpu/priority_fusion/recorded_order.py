"""What a replay of priority fusion may take from the compiler's record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.dump.priority_fusion import PriorityStep


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


class FormedFusion(NamedTuple):
    """A fusion that the pass left: its kind, and its backend config as written, empty if none."""

    kind: str
    config: str


@dataclass(frozen=True, slots=True)
class FollowedRecord:
    """The steps of a record, and the ``fusions`` that they led to, by name."""

    steps: tuple[PriorityStep, ...]
    fusions: Mapping[str, FormedFusion]
