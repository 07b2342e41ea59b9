"""Whether each producer and each of its consumers ended in one kernel: read off, never guessed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.history.kernels import SLICES
from fusionscope.history.values import Execution, NumberedModule, Value, flatten
from fusionscope.hlo import Instruction


class Outcome(StrEnum):
    FUSED = "fused"
    DUPLICATED = "duplicated"
    NOT_FUSED = "not-fused"
    GONE = "gone"


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A producer and one consumer that reads it, in the stage before fusion.

    ``kernel`` is the instruction of the final module that computes both, ``stage`` the label of the
    stage in which they first stand in one kernel; both are None unless fused or duplicated.
    ``number`` is the value that passes between them and ``readers`` are those that the consumer
    computes directly from it; ``path`` is the execution they are in. ``bytes_between`` need not
    pass through memory where both are in one kernel: what the consumer reads of the value, and
    where no one else reads it, what the producer writes.
    """

    producer: Instruction
    consumer: Instruction
    outcome: Outcome
    kernel: Instruction | None
    stage: str | None
    number: int
    readers: tuple[int, ...]
    path: Hashable
    bytes_between: int


class _Placed:
    """Where each value is computed in one stage."""

    def __init__(self, numbered: NumberedModule) -> None:
        self.kernels: dict[int, list[Instruction]] = defaultdict(list)
        self.joined: dict[tuple[int, int], Instruction] = {}
        self.by_name: dict[str, Instruction] = {}
        self.written: set[int] = set()
        for execution in numbered.executions:
            for kernel, numbers in execution.computed.items():
                for number in numbers:
                    self.kernels[number].append(kernel)
                for edge in execution.edges.get(kernel, ()):
                    if edge[0] in numbers:
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
        found: dict[tuple[Instruction, Instruction, int], Instruction] = {}
        for consumer in execution.values:
            if consumer.opcode not in ("tuple", "get-tuple-element", "parameter"):
                for producer, number, read in _producers(execution, consumer):
                    found.setdefault((producer, consumer, number), read)
        readings = Counter(number for _, _, number in found)
        for (producer, consumer, number), read in found.items():
            between = _bytes_read(consumer, read)
            if readings[number] == 1:
                between += read.shape.byte_size
            pairs.append(_pair(execution, producer, consumer, number, between, placed))
    return tuple(pairs)


def _producers(
    execution: Execution, consumer: Instruction
) -> Iterator[tuple[Instruction, int, Instruction]]:
    """Who computes what ``consumer`` reads, which number that is, and the instruction of its shape.

    Tuples and their elements are looked through.
    """
    pending: list[Instruction] = list(reversed(consumer.operands))
    seen: set[Instruction] = set()
    while pending:
        operand = pending.pop()
        source = operand
        while source.opcode == "get-tuple-element":
            source = source.operands[0]
        if source.opcode == "tuple":
            if source in seen:
                continue
            seen.add(source)
            index = operand.attribute("index")
            inner = source.operands
            pending.extend(reversed(inner if index is None else inner[index : index + 1]))
        elif source.opcode != "parameter":
            for number in flatten(execution.values.get(operand, ())):
                yield source, number, operand


def _bytes_read(consumer: Instruction, read: Instruction) -> int:
    if consumer.opcode in SLICES and consumer.operands[0] is read:
        return consumer.shape.byte_size
    return read.shape.byte_size


def _readers(
    execution: Execution, consumer: Instruction, value: Value, number: int
) -> tuple[int, ...]:
    """The values inside ``consumer`` that are computed directly from ``number``."""
    edges = execution.edges.get(consumer)
    if edges:
        return tuple(reader for read, reader in edges if read == number)
    return tuple(flatten(value))


def _pair(
    execution: Execution,
    producer: Instruction,
    consumer: Instruction,
    number: int,
    between: int,
    placed: Sequence[tuple[str, _Placed]],
) -> Pair:
    readers = _readers(execution, consumer, execution.values[consumer], number)
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
        if kernel is not None:
            elsewhere = len(set(producers)) > 1 or number in final.written
            outcome = Outcome.DUPLICATED if elsewhere else Outcome.FUSED
            stage = next(
                (label for label, where in placed if _joined(where, number, readers) is not None),
                placed[-1][0],
            )
    return Pair(
        producer, consumer, outcome, kernel, stage, number, readers, execution.path, between
    )


def _joined(placed: _Placed, number: int, readers: tuple[int, ...]) -> Instruction | None:
    return next((placed.joined[number, r] for r in readers if (number, r) in placed.joined), None)
