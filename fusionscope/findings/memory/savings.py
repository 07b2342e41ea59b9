"""Which refused fusions would lower the peak of memory.

If all readers of a kernel's result computed it themselves, the result would need no memory, and
what the kernel reads would live until the last of them runs. The peak then is the largest number of
bytes alive at any place, with the instructions in the same order: an estimate. The compiler orders
them anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fusionscope.dump.live_ranges import Position
from fusionscope.facts.module_analysis import KernelDetails
from fusionscope.facts.result import KernelFacts, PairFacts
from fusionscope.findings.memory.facts import MemorySaving
from fusionscope.findings.memory.live_bytes import Span, Spans, changes_of, count, sum_up
from fusionscope.history.outcomes import is_looked_through
from fusionscope.hlo import Instruction, Module
from fusionscope.rules.catalogue import is_legality

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
    changes = changes_of(spans.values(), len(sequence))
    givers: dict[Position, list[Position]] = defaultdict(list)
    for giver, span in spans.items():
        for taker in span.handed:
            givers[taker].append(giver)
    savings: list[MemorySaving] = []
    for position, span in spans.items():
        if not (span.first <= at <= span.last) or span.size < _LEAST_SHARE * peak:
            continue
        kernel = by_name.get(position.name)
        readers = _readers(kernel, position.index) if kernel is not None else None
        if not readers or kernel is None:
            continue
        pairs = refused.between(kernel.name, [reader.name for reader in readers])
        if pairs is None or any(reader.name not in places for reader in readers):
            continue
        last = max(places[reader.name] for reader in readers)
        own_changes = changes.copy()
        count(span, own_changes, -1)
        for changed_position, changed in _changed(position, last, kernel, givers[position], spans):
            count(spans[changed_position], own_changes, -1)
            count(changed, own_changes)
        after = sum_up(own_changes)
        highest = max(after)
        if peak - highest >= max(_LEAST_SHARE * peak, 1):
            savings.append(
                MemorySaving(
                    buffer=str(position),
                    producer=pairs[0].producer.name,
                    consumers=tuple(dict.fromkeys(pair.consumer.name for pair in pairs)),
                    reason=pairs[0].reason,
                    bytes_saved=peak - highest,
                    peak_bytes=highest,
                    at=after.index(highest),
                )
            )
    return tuple(
        sorted(
            savings,
            key=lambda changed_position: (
                -changed_position.bytes_saved,
                len(changed_position.consumers),
            ),
        )
    )


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
        self._ended: dict[str, set[int]] = {}
        self._began: dict[str, set[int]] = {}
        for facts, more in zip(kernels, details, strict=True):
            self._ended[facts.name] = set(more.ended)
            self._began[facts.name] = set(more.began)

    def between(self, producing: str, reading: Sequence[str]) -> tuple[PairFacts, ...] | None:
        """Return one pair for each of the kernels ``reading``, the costliest that could be fused;
        None if there is none for one of them.
        """
        pairs_between: list[PairFacts] = []
        for reader in reading:
            numbers = self._ended.get(producing, set()) & self._began.get(reader, set())
            pairs = [self._pairs[number] for number in numbers]
            pairs = [pair for pair in pairs if not is_legality(pair.reason or "")]
            if not pairs:
                return None
            pairs_between.append(
                max(pairs, key=lambda pair: (pair.bytes_saved, pair.producer.name))
            )
        return tuple(pairs_between)


def launched_by_name(module: Module) -> dict[str, Instruction]:
    """Return the instructions that run by themselves, and are not part of a fusion."""
    launched: dict[str, Instruction] = {}
    visited = {module.entry.name}
    pending = [module.entry]
    while pending:
        for instruction in pending.pop().instructions:
            launched[instruction.name] = instruction
            for callee in instruction.called if instruction.opcode != "fusion" else ():
                if callee.name not in visited:
                    visited.add(callee.name)
                    pending.append(callee)
    return launched


def _readers(kernel: Instruction, index: tuple[int, ...]) -> list[Instruction] | None:
    """Return the instructions that read a part of the result; None if it leaves the computation, or
    is passed on as a whole.
    """
    pending: list[Instruction] = [kernel]
    if index:
        pending = [
            user
            for user in kernel.users
            if user.opcode == "get-tuple-element" and user.attributes.get("index") == str(index[0])
        ]
    elif kernel.shape.is_tuple:
        return None
    readers: dict[Instruction, None] = {}
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
                readers[user] = None
    return list(readers)


def _changed(
    gone: Position,
    last: int,
    kernel: Instruction,
    givers: Iterable[Position],
    spans: Spans,
) -> Iterator[tuple[Position, Span]]:
    """Yield the values that change if all readers compute ``gone``, the last of them at ``last``:
    what ``kernel`` reads for it lives until then, and ``givers`` can no longer hand it their
    memory.
    """
    operands = [operand for operand in map(position_of, kernel.operands) if operand in spans]
    ends = {giver: spans[giver].last for giver in givers}
    ends |= {operand: max(last, spans[operand].last) for operand in operands}
    for position, end in ends.items():
        if position != gone:
            yield position, _with_end(spans[position], end, gone, spans)


def _with_end(span: Span, last: int, gone: Position, spans: Spans) -> Span:
    """Return the value with another end. What works in place at that end takes over its memory, if
    it had the memory of the value that is gone, and that one the memory of this one.
    """
    handed: dict[Position, int] = {}
    if gone in span.handed and spans[gone].last == last:
        handed |= spans[gone].handed
    if last == span.last:
        handed |= {
            handed_position: size
            for handed_position, size in span.handed.items()
            if handed_position != gone
        }
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
