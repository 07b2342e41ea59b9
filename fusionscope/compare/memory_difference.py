"""Where the peaks of memory of two dumps differ: which values came and went, and why."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fusionscope.facts.result import PairFacts
from fusionscope.findings.memory.facts import LiveBuffer, MemoryFacts
from fusionscope.findings.memory.savings import launched_by_name, position_of
from fusionscope.grouping import grouped
from fusionscope.history.matching import Matching
from fusionscope.history.outcomes import TOGETHER, Outcome, Pair
from fusionscope.history.values import NumberedModule
from fusionscope.hlo import Instruction


class Cause(StrEnum):
    """Why a value takes other bytes of the peak than before.

    ``copy`` is a copy that only one side has at its peak. ``other-time`` is a value that both sides
    compute, and that is alive at the peak of one of them.
    """

    LOST_FUSION = "lost-fusion"
    GAINED_FUSION = "gained-fusion"
    COPY = "copy"
    SIZE = "size"
    OTHER_TIME = "other-time"
    NEW = "new"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferDifference:
    """A value that takes other bytes of the two peaks.

    name: the value in the final module of AFTER, or of BEFORE if it is not alive at the peak of
        AFTER
    bytes_before: its bytes at the peak of BEFORE, 0 if it is not alive there
    bytes_after: the same for AFTER
    cause: ``lost-fusion``: pairs that read it are no longer fused; ``gained-fusion``: they are
        fused now; ``copy``: a copy; ``size``: it has another size; ``other-time``: both sides have
        it in memory, but only one at its peak; ``new``, ``gone``: only one side has it in memory
    producer: the producer of these pairs, before fusion, on the side that does not fuse them
    consumers: their consumers
    reason: id of the rule that refuses the first of them
    op_name: the framework's name of the operation that computes the value
    source: the user's line, as ``file:line``
    """

    name: str
    bytes_before: int
    bytes_after: int
    cause: Cause
    producer: str | None
    consumers: tuple[str, ...]
    reason: str | None
    op_name: str | None
    source: str | None

    @property
    def growth(self) -> int:
        return self.bytes_after - self.bytes_before


@dataclass(frozen=True, slots=True)
class PeakFacts:
    """The memory of one side, in bytes.

    total_bytes: all allocations
    peak_bytes: bytes alive at the peak
    peak_instruction: the instruction at the peak
    inside_calls: the most bytes that a library may reserve inside of a call in addition
    """

    total_bytes: int
    peak_bytes: int
    peak_instruction: str | None
    inside_calls: int


@dataclass(frozen=True, slots=True)
class MemoryDifference:
    """The memory of both sides, and the values that make the difference, the largest first.

    before: the memory of BEFORE
    after: the memory of AFTER
    buffers: values that take other bytes of the two peaks, the largest difference first
    """

    before: PeakFacts
    after: PeakFacts
    buffers: tuple[BufferDifference, ...]

    @property
    def is_same(self) -> bool:
        """Whether the figures are equal."""
        ours, theirs = (
            (side.total_bytes, side.peak_bytes, side.inside_calls)
            for side in (self.before, self.after)
        )
        return ours == theirs


class MemorySide(NamedTuple):
    """The memory of one side, its module right before fusion and the final one."""

    facts: MemoryFacts
    first: NumberedModule
    last: NumberedModule


class ChangedPair(NamedTuple):
    """A pair with another outcome on each side, and what explains it there."""

    pairs: tuple[Pair, Pair]
    facts: tuple[PairFacts, PairFacts]


# A value of either side: the operation before fusion that computes it, that of BEFORE if both have
# it, else the name of the buffer; and whether it is a copy.
_Key = tuple[Instruction | str, bool]


def compare_memory(
    sides: tuple[MemorySide, MemorySide], matching: Matching, changed: Iterable[ChangedPair]
) -> MemoryDifference | None:
    """Compare the peaks of two modules; None if nothing shows when their values are alive.

    ``matching`` is that of the modules before fusion, ``changed`` are their pairs with different
    outcomes.
    """
    peaks = [side.facts.peak_bytes for side in sides if side.facts.peak_bytes is not None]
    if len(peaks) < 2:
        return None
    alive: list[dict[_Key, list[LiveBuffer]]] = []
    all_keys: list[set[_Key]] = []
    for side, counterparts in zip(sides, ({}, matching.before), strict=True):
        keys = _keys(side, counterparts)
        buffers_by_key = grouped((keys[buffer.name], buffer) for buffer in side.facts.at_peak)
        alive.append(buffers_by_key)
        all_keys.append(set(keys.values()))
    fusions = grouped(
        (pair.pairs[0].producer, pair)
        for pair in changed
        if (pair.pairs[0].outcome in TOGETHER) != (pair.pairs[1].outcome in TOGETHER)
    )
    buffers = [
        _difference(key, ours, theirs, key in all_keys[0] and key in all_keys[1], fusions)
        for key in dict.fromkeys((*alive[1], *alive[0]))
        if _bytes(ours := alive[0].get(key, [])) != _bytes(theirs := alive[1].get(key, []))
    ]
    before, after = (
        PeakFacts(facts.total_bytes, peak, facts.peak_instruction, facts.inside_call_bytes)
        for (facts, *_), peak in zip(sides, peaks, strict=True)
    )
    return MemoryDifference(
        before,
        after,
        tuple(
            sorted(
                buffers,
                key=lambda changed_pair: (
                    -abs(changed_pair.growth),
                    -changed_pair.growth,
                    changed_pair.name,
                ),
            )
        ),
    )


def _keys(side: MemorySide, counterparts: Mapping[Instruction, Instruction]) -> dict[str, _Key]:
    """Return the key of each value in memory, by its name."""
    computed: dict[Hashable, Instruction] = {}
    for execution in side.first.executions:
        for instruction, value in execution.values.items():
            computed.setdefault(value, instruction)
    origins: dict[str, Instruction] = {}
    for execution in side.last.executions:
        for instruction, value in execution.values.items():
            if value in computed:
                origins.setdefault(str(position_of(instruction)), computed[value])
    launched = launched_by_name(side.last.module)
    keys: dict[str, _Key] = {}
    for name in (
        *(value.name for value in side.facts.values),
        *(b.name for b in side.facts.at_peak),
    ):
        origin = origins.get(name)
        launch = launched.get(name)
        is_copy = launch is not None and launch.opcode == "copy"
        keys[name] = (counterparts.get(origin, origin) if origin is not None else name, is_copy)
    return keys


def _bytes(buffers: Sequence[LiveBuffer]) -> int:
    return sum(buffer.bytes for buffer in buffers if buffer.in_place_of is None)


def _difference(
    key: _Key,
    ours: Sequence[LiveBuffer],
    theirs: Sequence[LiveBuffer],
    is_known: bool,
    fusions: Mapping[Instruction, Sequence[ChangedPair]],
) -> BufferDifference:
    largest = max(theirs or ours, key=lambda pair_changed: pair_changed.bytes)
    before, after = _bytes(ours), _bytes(theirs)
    operation, is_copy = key
    side = 1 if after > before else 0  # the one that keeps more of it in memory
    refused = [
        pair_changed
        for pair_changed in (
            fusions.get(operation, ()) if isinstance(operation, Instruction) else ()
        )
        if pair_changed.pairs[side].outcome is Outcome.NOT_FUSED
    ]
    if is_copy:
        cause, refused = Cause.COPY, []
    elif refused:
        cause = Cause.LOST_FUSION if side else Cause.GAINED_FUSION
    elif before and after:
        cause = Cause.SIZE
    elif is_known:
        cause = Cause.OTHER_TIME
    else:
        cause = Cause.NEW if after else Cause.GONE
    facts = [pair_changed.facts[side] for pair_changed in refused]
    return BufferDifference(
        name=largest.name,
        bytes_before=before,
        bytes_after=after,
        cause=cause,
        producer=facts[0].producer.name if facts else None,
        consumers=tuple(dict.fromkeys(fact.consumer.name for fact in facts)),
        reason=facts[0].reason if facts else None,
        op_name=largest.op_name,
        source=largest.source,
    )
