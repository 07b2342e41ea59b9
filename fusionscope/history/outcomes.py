"""Whether each producer and each of its consumers ended in one kernel: read off, never guessed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.history.operations import TRANSPARENT, Value, flatten, is_free_reshape
from fusionscope.history.traffic import Traffic, traffic
from fusionscope.history.values import Execution, NumberedModule, Numbering
from fusionscope.hlo import Instruction, Module

# Their result is their first operand.
_PASSED_ON = frozenset({"add-dependency", "domain", "opt-barrier"})
_LOOKED_THROUGH = _PASSED_ON | {"bitcast", "get-tuple-element", "parameter", "tuple"}


class Outcome(StrEnum):
    FUSED = "fused"
    DUPLICATED = "duplicated"
    NOT_FUSED = "not-fused"
    GONE = "gone"


TOGETHER = (Outcome.FUSED, Outcome.DUPLICATED)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A producer and one consumer that reads it, in the stage before fusion.

    Tuples, their elements and bitcasts are looked through: they move nothing.

    ``kernel`` is the instruction of the final module that computes both, ``stage`` the label of the
    stage in which they first stand in one kernel; both are None unless fused or duplicated.
    ``chain`` are the value that passes between them and what bitcasts on the way make of it, and
    ``readers`` what the consumer computes directly from the last of these; ``path`` is the
    execution they are in. ``bytes_between`` need not
    pass through memory where both are in one kernel: what the consumer reads of the value, and
    where no one else reads it, what the producer writes.
    """

    producer: Instruction
    consumer: Instruction
    outcome: Outcome
    kernel: Instruction | None
    stage: str | None
    chain: tuple[int, ...]
    readers: tuple[int, ...]
    path: Hashable
    bytes_between: int


def is_looked_through(instruction: Instruction) -> bool:
    """Whether it only passes values on, and so is neither producer nor consumer."""
    return instruction.opcode in _LOOKED_THROUGH or is_free_reshape(instruction)


class _Placed:
    """Where each value is computed in one stage."""

    def __init__(self, numbered: NumberedModule) -> None:
        self.kernels: dict[int, list[Instruction]] = defaultdict(list)
        self.joined: dict[tuple[int, int], Instruction] = {}
        self.edges: set[tuple[int, int]] = set()
        self.by_name: dict[str, Instruction] = {}
        self.written: set[int] = set()
        self.parts = numbered.parts
        for execution in numbered.executions:
            for kernel, numbers in execution.computed.items():
                for number in numbers:
                    self.kernels[number].append(kernel)
                self.edges |= execution.edges.get(kernel, set())
                for edge in execution.joined.get(kernel, ()):
                    self.joined.setdefault(edge, kernel)
            for step in execution.steps:
                kernel = step.inside or step.instruction
                self.by_name.setdefault(step.instruction.name, kernel)
                if step.inside is None:
                    self.written.update(flatten(step.value))

    def find(self, instruction: Instruction, numbers: Sequence[int]) -> list[Instruction]:
        """The kernels that compute one of ``numbers``, or else hold an instruction of this name."""
        for number in numbers:
            if number in self.kernels:
                return self.kernels[number]
        named = self.by_name.get(instruction.name)
        return [named] if named is not None else []


def find_pairs(
    before: NumberedModule, stages: Sequence[tuple[str, NumberedModule]]
) -> tuple[Pair, ...]:
    """Every pair of ``before`` with its outcome in the last of ``stages``.

    ``stages`` are labels and modules after the passes that form fusions, the final one last, all
    numbered by the ``Numbering`` that numbered ``before``.
    """
    placed = [(label, _Placed(numbered)) for label, numbered in stages]
    pairs: list[Pair] = []
    for execution in before.executions:
        found: dict[tuple[Instruction, Instruction, tuple[int, ...]], Instruction] = {}
        for consumer in execution.values:
            if not is_looked_through(consumer):
                for producer, chain, read in _producers(execution, consumer):
                    found.setdefault((producer, consumer, chain), read)
        readings = Counter(chain[0] for _, _, chain in found)
        moved: dict[Instruction, Traffic] = {}
        for (producer, consumer, chain), read in found.items():
            for each in (producer, consumer):
                if each not in moved:
                    moved[each] = traffic(each)
            between = moved[consumer].operands.get(read, read.shape.byte_size)
            if readings[chain[0]] == 1 and read not in moved[consumer].updated:
                between += min(read.shape.byte_size, moved[producer].written)
            pairs.append(_pair(execution, producer, consumer, chain, between, placed))
    return tuple(pairs)


def pairs_after(before: Module, after: Module) -> tuple[Pair, ...]:
    """Every pair of ``before``, in the order of its text, with its outcome in ``after``."""
    numbering = Numbering()
    numbered = numbering.number(before)
    return find_pairs(numbered, [("after", numbering.number(after))])


def _producers(
    execution: Execution, consumer: Instruction
) -> Iterator[tuple[Instruction, tuple[int, ...], Instruction]]:
    """Who computes what ``consumer`` reads, the chain of values, and the instruction it reads."""
    pending: list[tuple[Instruction, tuple[int, ...], Instruction]] = [
        (operand, (), operand) for operand in reversed(consumer.operands)
    ]
    seen: set[tuple[Instruction, tuple[int, ...]]] = set()
    while pending:
        operand, chain, read = pending.pop()
        source = operand
        indices: list[int] = []
        while (
            source.opcode in _PASSED_ON
            or source.opcode == "get-tuple-element"
            or (source.opcode == "tuple" and indices)
        ):
            if source.opcode == "get-tuple-element":
                indices.append(int(source.attributes.get("index", "0")))
            index = indices.pop() if source.opcode == "tuple" else 0
            source = source.operands[index]
        if source.opcode == "tuple":
            if (source, chain) not in seen:
                seen.add((source, chain))
                pending.extend((element, chain, element) for element in reversed(source.operands))
        elif source.opcode == "bitcast" or is_free_reshape(source):
            numbers = tuple(flatten(execution.values.get(source, ())))
            pending.append((source.operands[0], numbers + chain, read))
        elif source.opcode != "parameter":
            for number in flatten(execution.values.get(operand, ())):
                # A bitcast that changes nothing has the number of its operand.
                yield source, tuple(dict.fromkeys((number, *chain))), read


def _readers(
    execution: Execution, consumer: Instruction, value: Value, number: int
) -> tuple[int, ...]:
    """The values inside ``consumer`` that are computed directly from ``number``."""
    edges = execution.edges.get(consumer)
    if edges and consumer.opcode in TRANSPARENT:
        return tuple(reader for read, reader in edges if read == number)
    return tuple(flatten(value))


def with_parts(readers: tuple[int, ...], parts: dict[int, set[int]]) -> set[int]:
    """``readers`` with the first halves of those that a pass split."""
    return set(readers).union(*(parts.get(reader, ()) for reader in readers))


def _pair(
    execution: Execution,
    producer: Instruction,
    consumer: Instruction,
    chain: tuple[int, ...],
    between: int,
    placed: Sequence[tuple[str, _Placed]],
) -> Pair:
    number = chain[0]
    readers = _readers(execution, consumer, execution.values[consumer], chain[-1])
    final = placed[-1][1]
    producers = final.find(producer, (number,))
    consumers = final.find(consumer, readers)
    stage: str | None = None
    kernel: Instruction | None = None
    if not producers or not consumers:
        outcome = Outcome.GONE
    else:
        kernel = _joined(final, number, readers)
        known = number in final.kernels and any(reader in final.kernels for reader in readers)
        if kernel is None and not known:
            # Only names tell; one kernel that holds both a value and its reader has fused them.
            kernel = next(
                (k for k in producers if k in consumers and k.opcode in ("fusion", "async-start")),
                None,
            )
        outcome = Outcome.NOT_FUSED
        if (
            kernel is None
            and known
            and not any((number, part) in final.edges for part in with_parts(readers, final.parts))
        ):
            outcome = Outcome.GONE  # both are there, but the one no longer reads the other
        if kernel is not None:
            elsewhere = len(set(producers)) > 1 or number in final.written
            outcome = Outcome.DUPLICATED if elsewhere else Outcome.FUSED
            stage = next(
                (label for label, where in placed if _joined(where, number, readers) is not None),
                placed[-1][0],
            )
    return Pair(producer, consumer, outcome, kernel, stage, chain, readers, execution.path, between)


def _joined(placed: _Placed, number: int, readers: tuple[int, ...]) -> Instruction | None:
    """The kernel that computes the producer's value and what the consumer makes of it.

    A reduction that a pass split reads the value in its first half.
    """
    return next(
        (
            placed.joined[number, part]
            for part in with_parts(readers, placed.parts)
            if (number, part) in placed.joined
        ),
        None,
    )
