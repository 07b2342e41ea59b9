"""The generations of the GPU compiler's emitters that rules and the cost model know."""

from __future__ import annotations

from enum import Enum


class Emitters(Enum):
    """By the first jaxlib that has them. The older ones use a bank of shared memory for one element
    however narrow it is, have an emitter for several slices of one array, and are launched with
    other numbers of blocks."""

    V0_4 = "0.4.34"
    V0_10 = "0.10"
