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
        own = changes.copy()
        count(span, own, -1)
        for each, changed in _changed(position, last, kernel, givers[position], spans):
            count(spans[each], own, -1)
            count(changed, own)
        after = sum_up(own)
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
        self._ended: dict[str, set[int]] = {}
        self._began: dict[str, set[int]] = {}
        for facts, more in zip(kernels, details, strict=True):
            self._ended[facts.name] = set(more.ended)
            self._began[facts.name] = set(more.began)

    def between(self, producing: str, reading: Sequence[str]) -> tuple[PairFacts, ...] | None:
        """Return one pair for each of the kernels ``reading``, the costliest that could be fused;
        None if there is none for one of them.
        """
        found: list[PairFacts] = []
        for reader in reading:
            numbers = self._ended.get(producing, set()) & self._began.get(reader, set())
            pairs = [self._pairs[number] for number in numbers]
            pairs = [each for each in pairs if not is_legality(each.reason or "")]
            if not pairs:
                return None
            found.append(max(pairs, key=lambda each: (each.bytes_saved, each.producer.name)))
        return tuple(found)


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
    operands = [each for each in map(position_of, kernel.operands) if each in spans]
    ends = {each: spans[each].last for each in givers}
    ends |= {each: max(last, spans[each].last) for each in operands}
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
        handed |= {each: size for each, size in span.handed.items() if each != gone}
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
