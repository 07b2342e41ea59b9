"""Collectives: what devices send each other, where it comes from, and what runs meanwhile."""

from __future__ import annotations

from enum import StrEnum

from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Operation


class CollectiveCause(StrEnum):
    PROGRAM = "program"  # the program calls it
    RESHARDING = "resharding"  # an operand is sharded otherwise than its user
    SUM = "sum"  # an operation combines elements of several devices
    NEIGHBOURS = "neighbours"  # a window reaches into the part of another device
    WHOLE = "whole"  # an operation works along a dimension that is split
    UNKNOWN = "unknown"


class Sharding(Facts, frozen=True):
    """How the array that an instruction computes is split over devices.

    operation: the instruction, before partitioning
    text: its sharding, as the compiler prints it
    set_by: the nearest operation with this sharding that has it by the program: the line of a
        constraint or a ``shard_map``, as ``file:line``, the name of an argument, or ``the result``;
        null if there is none
    """

    operation: Operation
    text: str
    set_by: str | None


class Collective(Facts, frozen=True, kw_only=True):
    """A collective of the final module, with all kernels that do parts of it.

    name: the instruction; of several parts, the first
    kind: ``all-gather``, ``all-reduce``, ``all-to-all``, ``collective-permute``, …
    kernels: the kernels that do it
    runs: how often it runs in a run of the module
    bytes: what one device sends or receives in one run, whichever is more
    groups: which devices exchange data, as the compiler prints it
    cause: ``program``: the program calls it; ``resharding``: the partitioner added it because an
        operand is sharded otherwise than its user; ``sum``: the partitioner added it because an
        operation combines elements of several devices; ``neighbours``: because a window reaches
        into the part of another device; ``whole``: because an operation, such as a sort, works
        along a dimension that is split; ``unknown``
    source: the line of the program: of the call, of the user for which data is sharded anew, or of
        the operation whose parts are combined, or that works along the dimension, or
        the nearest line where that has none; null if unknown
    before: the operand, of a resharding, a sum or such an operation; null if unknown
    after: the user, of a resharding, or the operation that combines; null if unknown
    beside: the kernels that are scheduled while it is under way
    beside_ns: the estimated time of these in one run; null if a time is not known
    """

    finding = "collectives"

    name: str
    kind: str
    kernels: tuple[str, ...]
    runs: int
    bytes: int
    groups: str
    cause: CollectiveCause
    source: str | None
    before: Sharding | None
    after: Sharding | None
    beside: tuple[str, ...]
    beside_ns: float | None


class Fields(Facts, frozen=True):
    """
    collectives: what devices send each other, in the order of the text
    """

    collectives: tuple[Collective, ...] = ()
