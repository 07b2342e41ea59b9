"""Which refused fusions would lower the peak of memory.

If all readers of a kernel's result computed it themselves, the result would need no memory, and
what the kernel reads would live until the last of them runs. The peak then is the largest number of
bytes alive at any place, with the instructions in the same order: an estimate. The compiler orders
them anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fusionscope.dump.buffer_assignment import Position
from fusionscope.explain.analysis import KernelDetails
from fusionscope.explain.live_bytes import Span, Spans
from fusionscope.explain.memory_facts import MemorySaving
from fusionscope.explain.result import KernelFacts, PairFacts
from fusionscope.history.outcomes import is_looked_through
from fusionscope.hlo import Instruction
from fusionscope.rules.catalogue import legality_rules

_LEAST_SHARE = 0.001  # of the peak: smaller savings are not listed


class _Change(NamedTuple):
    """The bytes that are alive more, or less, from the place ``first`` to ``last``."""

    first: int
    last: int
    size: int


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
        pairs = refused.between(kernel.name, [each.name for each in readers], span.size)
        if pairs is None or any(each.name not in places for each in readers):
            continue
        last = max(places[each.name] for each in readers)
        after = _apply(live, _changes(kernel, position, last, spans))
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
    return tuple(sorted(found, key=lambda each: -each.bytes_saved))


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
        self, producing: str, reading: Sequence[str], size: int
    ) -> tuple[PairFacts, ...] | None:
        """Return one pair for each of the kernels ``reading``, the costliest that could be fused;
        None if there is none for one of them.
        """
        found: list[PairFacts] = []
        for reader in reading:
            numbers = self._ended.get(producing, set()) & self._began.get(reader, set())
            pairs = [self._pairs[each] for each in numbers]
            pairs = [each for each in pairs if each.reason not in self._impossible]
            if not pairs:
                return None
            found.append(max(pairs, key=lambda each: (each.bytes_saved, each.producer.name)))
        return tuple(found)


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


def _changes(kernel: Instruction, position: Position, last: int, spans: Spans) -> Iterator[_Change]:
    """Yield the changes if the readers of the value at ``position`` compute it, the last of them at
    the place ``last``.
    """
    gone = spans[position]
    yield from _life(gone, -1)
    for operand in dict.fromkeys(map(position_of, kernel.operands)):
        read = spans.get(operand)
        if read is None or read.last >= last or operand == position:
            continue
        # A reader that works in place takes over the memory of what the kernel overwrote.
        is_passed_on = position in read.handed
        handed = gone.handed if is_passed_on and gone.last == last else {}
        yield from _life(read, -1)
        yield from _life(Span(read.size, read.first, last, handed), 1)


def _life(span: Span, sign: int) -> Iterator[_Change]:
    yield _Change(span.first, span.last, sign * span.size)
    yield _Change(span.last, span.last, -sign * span.shared)


def _apply(live: Sequence[int], changes: Iterator[_Change]) -> list[int]:
    after = list(live)
    for change in changes:
        for place in range(change.first, change.last + 1):
            after[place] += change.size
    return after


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
