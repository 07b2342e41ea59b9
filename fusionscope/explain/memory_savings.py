"""Which refused fusions would lower the peak of memory.

If all readers of a kernel's result computed it themselves, the result would need no memory, and
what the kernel reads would live until the last of them runs. The peak then is the largest number of
bytes alive at any place, with the instructions in the same order: an estimate. The compiler orders
them anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from fusionscope.dump import DumpedModule
from fusionscope.dump.buffer_assignment import Position
from fusionscope.explain.analysis import KernelDetails
from fusionscope.explain.live_bytes import Span, Spans, count_live, spans_of
from fusionscope.explain.memory_facts import MemorySaving
from fusionscope.explain.result import ChangedPair, KernelFacts, PairFacts
from fusionscope.history.outcomes import TOGETHER, is_looked_through
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.shape import ShapeTable
from fusionscope.rules.catalogue import legality_rules

Names: TypeAlias = tuple[str, str]  # of a producer and its consumer

_LEAST_SHARE = 0.001  # of the peak: smaller savings are not listed


def find_savings(
    refused: RefusedPairs,
    by_name: Mapping[str, Instruction],
    sequence: Sequence[str],
    spans: Spans,
    live: Sequence[int],
) -> tuple[MemorySaving, ...]:
    """Return the refused fusions that lower the peak, those first that lower it most.

    ``by_name`` are the instructions of the final module, ``live`` the bytes alive at each place of
    their ``sequence``.
    """
    peak = max(live, default=0)
    at = live.index(peak) if peak else 0
    places = {name: place for place, name in enumerate(sequence)}
    found: list[MemorySaving] = []
    for position, span in spans.items():
        if not (span.first <= at <= span.last) or span.size < _LEAST_SHARE * peak:
            continue
        kernel = by_name.get(position.name)
        readers = _readers(kernel, position.index) if kernel is not None else None
        if not readers or kernel is None:
            continue
        pairs = refused.between(kernel.name, [each.name for each in readers])
        if pairs is None or any(each.name not in places for each in readers):
            continue
        last = max(places[each.name] for each in readers)
        after = count_live(_without({position: last}, by_name, spans).values(), len(sequence))
        highest = max(after)
        if peak - highest >= max(_LEAST_SHARE * peak, 1):
            found.append(
                MemorySaving(
                    buffer=str(position),
                    producer=pairs[0].producer.name,
                    consumers=tuple(dict.fromkeys(each.consumer.name for each in pairs)),
                    reason=pairs[0].reason,
                    bytes_saved=peak - highest,
                    peak_bytes=highest,
                    at=after.index(highest),
                )
            )
    return tuple(sorted(found, key=lambda each: (-each.bytes_saved, len(each.consumers))))


class RefusedPairs:
    """The refused pairs by the kernels that their ends are in, without those that no compiler could
    fuse.
    """

    def __init__(
        self,
        pairs: Sequence[PairFacts],
        kernels: Sequence[KernelFacts],
        details: Sequence[KernelDetails],
    ) -> None:
        self._pairs = pairs
        self._impossible = legality_rules()
        self._ended: dict[str, set[int]] = {}
        self._began: dict[str, set[int]] = {}
        for facts, more in zip(kernels, details, strict=True):
            self._ended[facts.name] = set(more.ended)
            self._began[facts.name] = set(more.began)

    def between(
        self, producing: str, reading: Sequence[str], fused: Container[Names] | None = None
    ) -> tuple[PairFacts, ...] | None:
        """Return one pair for each of the kernels ``reading``, the costliest that could be fused,
        or of those ``fused`` if they are given; None if there is none for one of them.
        """
        found: list[PairFacts] = []
        for reader in reading:
            numbers = self._ended.get(producing, set()) & self._began.get(reader, set())
            pairs = [
                each for number in numbers if self._is_meant(each := self._pairs[number], fused)
            ]
            if not pairs:
                return None
            found.append(max(pairs, key=lambda each: (each.bytes_saved, each.producer.name)))
        return tuple(found)

    def _is_meant(self, pair: PairFacts, fused: Container[Names] | None) -> bool:
        if fused is None:
            return pair.reason not in self._impossible
        return (pair.producer.name, pair.consumer.name) in fused


def predict_peak(
    module: DumpedModule,
    refused: RefusedPairs,
    pairs: Sequence[PairFacts],
    changed: Sequence[ChangedPair],
) -> tuple[int, int] | None:
    """Return the peak of the final module, and what it becomes if fusion changes like this; None if
    no file shows when values are alive. Raises ``UnusableInput``.

    What is no longer fused is alive where the kernel runs that computed both. If the consumer then
    works in place, the peak is lower than predicted.
    """
    assignment, ranges = module.buffer_assignment, module.live_ranges
    if assignment is None or ranges is None or module.final is None:
        return None
    by_name = launched_by_name(module.read(module.final))
    spans = spans_of(assignment, ranges)
    places = {name: place for place, name in enumerate(ranges.sequence)}
    fused = {(e.producer, e.consumer) for e in changed if e.after in TOGETHER}
    parted = {(e.producer, e.consumer) for e in changed if e.after not in TOGETHER}
    lasts = _last_places(refused, by_name, spans, places, fused)
    kept = [each for each in pairs if (each.producer.name, each.consumer.name) in parted]
    after = [*_without(lasts, by_name, spans).values(), *_separated(kept, places)]
    length = len(ranges.sequence)
    return _peak(spans.values(), length), _peak(after, length)


def _peak(spans: Iterable[Span], length: int) -> int:
    return max(count_live(spans, length), default=0)


def _separated(pairs: Sequence[PairFacts], places: Mapping[str, int]) -> Iterator[Span]:
    """Yield the results of the producers of ``pairs``, which are fused and would no longer be."""
    ends: dict[str, list[int]] = defaultdict(list)
    shapes: dict[str, str] = {}
    for pair in pairs:
        if pair.kernel is not None and pair.kernel in places:
            ends[pair.producer.name].append(places[pair.kernel])
            shapes[pair.producer.name] = pair.producer.shape
    table = ShapeTable()
    for name, at in ends.items():
        if not shapes[name].startswith("("):  # shapes of large tuples are abridged
            yield Span(table[shapes[name]].byte_size, min(at), max(at))


def _last_places(
    refused: RefusedPairs,
    by_name: Mapping[str, Instruction],
    spans: Spans,
    places: Mapping[str, int],
    fused: Container[Names],
) -> dict[Position, int]:
    """Return the values that need no memory if the pairs ``fused`` are, and the last place at which
    each is computed.
    """
    found: dict[Position, int] = {}
    by_kernel: dict[str, int] = {}
    for position in sorted(spans, key=lambda each: -spans[each].first):
        kernel = by_name.get(position.name)
        readers = _readers(kernel, position.index) if kernel is not None else None
        names = [each.name for each in readers or ()]
        if not names or refused.between(position.name, names, fused) is None:
            continue
        if all(name in places for name in names):
            last = max(max(places[name], by_kernel.get(name, 0)) for name in names)
            found[position] = last
            by_kernel[position.name] = max(last, by_kernel.get(position.name, 0))
    return found


def launched_by_name(module: Module) -> dict[str, Instruction]:
    """Return the instructions that run by themselves, and are not part of a fusion."""
    found: dict[str, Instruction] = {}
    seen = {module.entry.name}
    pending = [module.entry]
    while pending:
        for each in pending.pop().instructions:
            found[each.name] = each
            for called in each.called if each.opcode != "fusion" else ():
                if called.name not in seen:
                    seen.add(called.name)
                    pending.append(called)
    return found


def _readers(kernel: Instruction, index: tuple[int, ...]) -> list[Instruction] | None:
    """Return the instructions that read a part of the result; None if it leaves the computation, or
    is passed on as a whole.
    """
    pending: list[Instruction] = [kernel]
    if index:
        pending = [
            each
            for each in kernel.users
            if each.opcode == "get-tuple-element" and each.attributes.get("index") == str(index[0])
        ]
    elif kernel.shape.is_tuple:
        return None
    found: dict[Instruction, None] = {}
    while pending:
        current = pending.pop()
        if current.is_root:
            return None
        for user in current.users:
            if user.opcode == "tuple":
                return None
            if is_looked_through(user):
                pending.append(user)
            else:
                found[user] = None
    return list(found)


def _without(
    gone: Mapping[Position, int], by_name: Mapping[str, Instruction], spans: Spans
) -> dict[Position, Span]:
    """Return the values if those ``gone`` are computed where they are read, for the last time at
    the place that is given for each.
    """
    lives: dict[Position, int] = {}
    for position, last in gone.items():
        for operand in map(position_of, by_name[position.name].operands):
            if operand in spans and operand not in gone:
                lives[operand] = max(last, lives.get(operand, spans[operand].last))
    return {
        position: _with_end(span, lives.get(position, span.last), gone, spans)
        for position, span in spans.items()
        if position not in gone
    }


def _with_end(span: Span, last: int, gone: Mapping[Position, int], spans: Spans) -> Span:
    """Return the value with another end. What works in place at that end takes over its memory, if
    it had the memory of a value that is gone, and that one the memory of this one.
    """
    if last == span.last and not any(each in gone for each in span.handed):
        return span
    handed: dict[Position, int] = {}
    pending = [each for each in span.handed if each in gone]
    while pending:
        taker = spans[pending.pop()]
        for each, size in taker.handed.items():
            if each in gone:
                pending.append(each)
            elif taker.last == last:
                handed[each] = size
    if last == span.last:
        handed |= {each: size for each, size in span.handed.items() if each not in gone}
    return Span(span.size, span.first, last, handed)


def position_of(instruction: Instruction) -> Position:
    """Return the value that an instruction stands for: views, tuples and their elements have no
    memory of their own.
    """
    index: tuple[int, ...] = ()
    while True:
        if instruction.opcode == "get-tuple-element":
            index = (int(instruction.attributes.get("index", "0")), *index)
        elif instruction.opcode == "tuple" and index:
            instruction, index = instruction.operands[index[0]], index[1:]
            continue
        elif instruction.opcode not in _VIEWS:
            return Position(instruction.name, index)
        instruction = instruction.operands[0]


_VIEWS = frozenset({"bitcast", "opt-barrier"})
