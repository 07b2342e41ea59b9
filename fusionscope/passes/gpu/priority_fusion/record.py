"""Compares a replay of priority fusion with the compiler's own record, step by step."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from fusionscope.dump.agreement import Agreement
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, PriorityStep
from fusionscope.gpu.cost.duration import microseconds
from fusionscope.gpu.cost.numbers import f32
from fusionscope.gpu.emitters import TRITON
from fusionscope.hlo import Module
from fusionscope.passes.gpu.priority_fusion.recorded_order import (
    FollowedRecord,
    FormedFusion,
    RecordedOrder,
)
from fusionscope.passes.gpu.priority_fusion.run import grown
from fusionscope.passes.plan import Event, Merged, Refused


class PriorityComparison(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "native": "priorities",
        "with_triton": "priorities_with_triton",
        "reasons_of_another": "reasons_of_another_consumer",
    },
):
    """The number of steps on which record and replay agree.

    The total is that of the longer of the two. Priorities agree if both times do, as 32-bit floats:
    ``first`` is the first difference: replay and record, in words, empty if one has no such step.

    native: priorities by the compiler's estimates of its own code
    with_triton: priorities of a producer or for a consumer that Triton emits
    reasons: reasons for a refusal, of the first consumer that refuses
    reasons_of_another: reasons that differ, and in the replay hold for another consumer than the
        first one that it asks
    fusions: fusions
    """

    internal = ("first",)

    native: Agreement
    with_triton: Agreement
    reasons: Agreement
    reasons_of_another: int
    fusions: Agreement
    first: tuple[str, str] | None


class _Kind(Enum):
    NATIVE = "priority"
    WITH_TRITON = "priority with Triton"
    REFUSED = "not fused"
    FUSED = "fused"


# Of an instruction in a reason: its names, the shapes of operands, which jaxlib 0.4.38 prints, too,
# and what is printed for readers.
_UNCOMPARED = re.compile(
    r"(?:\w+\[[\d,]*\](?:\{[^}]*\})? )?%[\w.-]+|/\*index=\d+\*/|, metadata=\{[^}]*\}"
)


class _Told(NamedTuple):
    """A step in which fusions have the names of the instructions they grew from. The numbers of
    fusions depend on the order of computations and of users.
    """

    kind: _Kind
    producer: str
    rest: tuple[str | float, ...]

    def __str__(self) -> str:
        return f"{self.kind.value} {self.producer}: {', '.join(map(str, self.rest))}"

    @property
    def compared(self) -> _Told:
        """The step without what may differ."""
        if self.kind is not _Kind.REFUSED:
            return self
        return self._replace(rest=(_UNCOMPARED.sub("", str(self.rest[0])),))


class _Teller:
    def __init__(self, triton: Iterable[str]) -> None:
        self._triton = set(triton)
        self._grew_from: dict[str, str] = {}

    def name(self, name: str) -> str:
        return self._grew_from.get(name, name)

    def fused(self, fusion: str, producer: str, consumer: str) -> _Told:
        statement = _Told(_Kind.FUSED, self.name(producer), (self.name(consumer),))
        if producer in self._triton or consumer in self._triton:
            self._triton.add(fusion)
        if fusion != consumer:
            self._grew_from[fusion] = grown(str(statement.rest[0]))
        return statement

    def refused(self, producer: str, reason: str) -> _Told:
        return _Told(_Kind.REFUSED, self.name(producer), (reason,))

    def scored(
        self, producer: str, consumers: Iterable[str], fused: float, unfused: float
    ) -> _Told:
        names = [self.name(consumer) for consumer in consumers]
        is_triton = not self._triton.isdisjoint((producer, *consumers))
        kind = _Kind.WITH_TRITON if is_triton else _Kind.NATIVE
        return _Told(kind, self.name(producer), (*sorted(names), fused, unfused))


def _recorded(steps: Iterable[PriorityStep], triton: Iterable[str]) -> Iterator[_Told]:
    teller = _Teller(triton)
    for step in steps:
        if isinstance(step, Fused):
            yield teller.fused(step.fusion, step.producer, step.consumer)
        elif isinstance(step, Ineligible):
            yield teller.refused(step.producer, step.reason)
        else:
            times = f32(step.fused_us), f32(step.unfused_us)
            yield teller.scored(step.producer, step.consumers, *times)


def _replayed(
    events: Iterable[Event], triton: Iterable[str]
) -> Iterator[tuple[_Told, tuple[str, ...]]]:
    """Yield the replayed steps, each with other possible reasons."""
    teller = _Teller(triton)
    for event in events:
        if isinstance(event, Merged):
            yield teller.fused(event.fusion, event.producer, event.consumer), ()
        elif isinstance(event, Refused):
            yield teller.refused(event.producer, event.decision.message), event.others
        else:
            times = microseconds(event.fused), microseconds(event.unfused)
            yield teller.scored(event.producer, event.consumers, *times), ()


def recorded_order(steps: Iterable[PriorityStep]) -> RecordedOrder:
    """Return the order of the fusions and scores in a record."""
    teller = _Teller(())
    producers: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    scored: dict[tuple[str, int], int] = {}
    times: Counter[str] = Counter()
    for place, step in enumerate(steps):
        if isinstance(step, Fused):
            statement = teller.fused(step.fusion, step.producer, step.consumer)
            producers.setdefault(statement.producer, place)
            pairs.setdefault((statement.producer, str(statement.rest[0])), place)
        else:
            name = teller.name(step.producer)
            scored[name, times[name]] = place
            times[name] += 1
    return RecordedOrder(producers, pairs, scored)


def undecided_order(steps: Iterable[PriorityStep]) -> RecordedOrder:
    """Return the part of the order that no rule decides: several threads score at once, and the
    users of a bitcast, which is never scored, show only in the fusions that it goes into.
    """
    order = recorded_order(steps)
    scored = {producer for producer, _ in order.scored}
    pairs = {pair: place for pair, place in order.pairs.items() if pair[0] not in scored}
    return RecordedOrder({}, pairs, order.scored)


def followed_record(steps: Iterable[PriorityStep], before: Module, after: Module) -> FollowedRecord:
    """Return what a replay needs to follow ``steps`` from ``before`` to ``after``."""
    steps = tuple(steps_within(before, steps))
    names = {step.fusion for step in steps if isinstance(step, Fused)}
    fusions: dict[str, FormedFusion] = {}
    for instruction in after.walk():
        if instruction.opcode == "fusion" and instruction.name in names:
            config = instruction.attributes.get("backend_config", "")
            is_tiled = f'"{TRITON}"' in config
            kind = instruction.attributes.get("kind", "")
            fusions[instruction.name] = FormedFusion(kind, config if is_tiled else "")
    return FollowedRecord(steps, fusions)


def recorded_users(steps: Iterable[PriorityStep]) -> dict[str, tuple[str, ...]]:
    """Return the ordered users of instructions before the pass, of those that a record scores."""
    users: dict[str, tuple[str, ...]] = {}
    for step in steps:
        if isinstance(step, Priority):
            users.setdefault(step.producer, step.consumers)
    return users


def steps_within(module: Module, steps: Iterable[PriorityStep]) -> list[PriorityStep]:
    """Return the steps about the contents of ``module``.

    The pass also handles dead computations that earlier passes left behind: the softmax rewriter,
    for example, leaves those that it could not tile.
    """
    reached = {computation.name for computation in module.reachable()}
    elsewhere = {
        instruction.name
        for computation in module.computations
        if computation.name not in reached
        for instruction in computation.instructions
    }
    within: list[PriorityStep] = []
    for step in steps:
        ends = {step.producer, step.consumer} if isinstance(step, Fused) else {step.producer}
        if elsewhere.isdisjoint(ends):
            within.append(step)
        elif isinstance(step, Fused):
            elsewhere.add(step.fusion)
    return within


def compare_with_record(
    events: Iterable[Event], steps: Iterable[PriorityStep], triton: Iterable[str]
) -> PriorityComparison:
    """Compare ``events`` of the replay with ``steps`` of the record. ``triton`` names the fusions
    that Triton emits before the pass.
    """
    triton = frozenset(triton)
    theirs, ours = list(_recorded(steps, triton)), list(_replayed(events, triton))
    sizes = (
        Counter(statement.kind for statement in theirs),
        Counter(statement.kind for statement, _ in ours),
    )
    waiting: dict[_Told, deque[int]] = defaultdict(deque)
    for place, (statement, _) in enumerate(ours):
        waiting[statement.compared].append(place)
    agreeing: Counter[_Kind] = Counter()
    lone: list[_Told] = []
    for statement in theirs:
        if places := waiting[statement.compared]:
            places.popleft()
            agreeing[statement.kind] += 1
        else:
            lone.append(statement)
    unmatched = [ours[place] for place in sorted(chain(*waiting.values()))]

    def agreement(kind: _Kind) -> Agreement:
        return Agreement(max(size[kind] for size in sizes), agreeing[kind])

    return PriorityComparison(
        native=agreement(_Kind.NATIVE),
        with_triton=agreement(_Kind.WITH_TRITON),
        reasons=agreement(_Kind.REFUSED),
        reasons_of_another=_count_of_another(lone, unmatched),
        fusions=agreement(_Kind.FUSED),
        first=_first_difference(lone, [statement for statement, _ in unmatched]),
    )


def _count_of_another(lone: list[_Told], unmatched: list[tuple[_Told, tuple[str, ...]]]) -> int:
    reasons_by_producer: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for statement, reasons in unmatched:
        if statement.kind is _Kind.REFUSED:
            reasons_by_producer[statement.producer].append(reasons)
    count = 0
    for statement in lone:
        alternatives = (
            reasons_by_producer[statement.producer] if statement.kind is _Kind.REFUSED else []
        )
        alternative = next(
            (reasons for reasons in alternatives if statement.rest[0] in reasons), None
        )
        if alternative is not None:
            alternatives.remove(alternative)
            count += 1
    return count


def _first_difference(lone: list[_Told], unmatched: list[_Told]) -> tuple[str, str] | None:
    if not lone:
        return (str(unmatched[0]), "") if unmatched else None
    same = next(
        (statement for statement in unmatched if statement.producer == lone[0].producer), None
    )
    return str(same or ""), str(lone[0])
