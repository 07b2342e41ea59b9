"""Determines whether each producer and consumer ended in one kernel, from the modules alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from fusionscope.history.operations import TRANSPARENT, Value, flatten, is_free_reshape, is_view
from fusionscope.history.traffic import Traffic, traffic
from fusionscope.history.values import Block, Execution, NumberedModule, Numbering
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable
from fusionscope.hlo.views import PASSED_ON, SAME_MEMORY, TUPLES

# Of an equal value that is read in more places than this nothing more is asked.
_MOST_READERS = 2_000
# With more copies of one value, further kernels do not tell them apart: each would be compared with
# each.
_MOST_COPIES = 64
_LOOKED_THROUGH = SAME_MEMORY | TUPLES | {"parameter"}


_Place = tuple[int, Instruction]  # a value, and the instruction that computes it before fusion


class Outcome(StrEnum):
    FUSED = "fused"
    DUPLICATED = "duplicated"
    NOT_FUSED = "not-fused"
    GONE = "gone"


TOGETHER = (Outcome.FUSED, Outcome.DUPLICATED)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pair:
    """A producer and one consumer that reads it, in the stage before fusion.

    Tuples, their elements and bitcasts are transparent: they move nothing.

    ``kernel`` is the instruction of the final module that computes both, and ``stage`` the label of
    the first stage in which one kernel has both; both are None unless the pair is fused or
    duplicated. ``chain`` holds the numbers of the producer's value and of its views on the way to
    the consumer. ``readers`` holds the numbers that the consumer computes directly from the last of
    these. ``path`` is the path of their ``Execution``. ``bytes_between`` counts the bytes that
    fusing the pair saves: those that the consumer reads of the value, and those that the producer
    writes, unless something else reads the value or the consumer updates it in place.
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

    def bytes_saved(self, runs: int) -> int:
        """Return the bytes that fusing the pair saves, or saved, if it runs ``runs`` times."""
        return 0 if self.outcome is Outcome.GONE else self.bytes_between * runs


def is_looked_through(instruction: Instruction) -> bool:
    """Return whether it only passes values on: it is neither producer nor consumer."""
    return instruction.opcode in _LOOKED_THROUGH or is_free_reshape(instruction)


def names_by_value(numbered: NumberedModule) -> dict[Value, str]:
    """Return the names of the instructions that compute values, without those of equal values."""
    names: dict[Value, str | None] = {}
    for execution in numbered.executions:
        for instruction, value in execution.values.items():
            if not is_looked_through(instruction) and instruction.opcode != "fusion":
                first_name = names.setdefault(value, instruction.name)
                if first_name != instruction.name:
                    names[value] = None
    return {value: name for value, name in names.items() if name is not None}


class _Stage:
    """The kernels of one stage by the values that they compute."""

    def __init__(self, numbered: NumberedModule) -> None:
        self.parts = numbered.parts
        self._numbered = numbered
        self._following: dict[Instruction, dict[int, list[int]]] = {}
        self._read: dict[Instruction, dict[int, list[int]]] = {}
        self._readers: dict[Instruction, set[Instruction]] = {}
        self._sources: dict[Instruction, dict[int, set[str]]] = {}
        self._by_source: dict[int, dict[str, list[Instruction]]] = {}
        self._by_name: dict[int, dict[str, Instruction]] = {}

    # Few questions need all of these.

    @cached_property
    def kernels(self) -> dict[int, list[Instruction]]:
        """The kernels that compute each value."""
        kernels_by_value: dict[int, list[Instruction]] = defaultdict(list)
        for execution in self._numbered.executions:
            for kernel, numbers in execution.computed.items():
                for number in numbers:
                    kernels_by_value[number].append(kernel)
        return kernels_by_value

    @cached_property
    def joined(self) -> dict[tuple[int, int], set[Instruction]]:
        """The kernels that compute the second value from the first, which they compute too."""
        return _by_edge(execution.joined for execution in self._numbered.executions)

    @cached_property
    def reading(self) -> dict[tuple[int, int], set[Instruction]]:
        """The kernels that compute the second value from the first."""
        return _by_edge(execution.edges for execution in self._numbered.executions)

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """The kernel of each instruction, by name."""
        instructions: dict[str, Instruction] = {}
        for computation, _, inside in self._walk_blocks():
            for instruction in computation.instructions:
                instructions.setdefault(instruction.name, inside or instruction)
        return instructions

    @cached_property
    def results(self) -> dict[Instruction, set[int]]:
        """The values that each unfused instruction returns."""
        values_of: dict[Instruction, set[int]] = defaultdict(set)
        for computation, values, inside in self._walk_blocks():
            if inside is None:
                for instruction, value in zip(computation.instructions, values, strict=True):
                    values_of[instruction].update(flatten(value))
        return values_of

    @cached_property
    def _executions(self) -> dict[Instruction, Execution]:
        executions: dict[Instruction, Execution] = {}
        for execution in self._numbered.executions:
            for kernel in execution.computed:
                executions.setdefault(kernel, execution)
        return executions

    @cached_property
    def _blocks(self) -> dict[Instruction, list[Block]]:
        blocks: dict[Instruction, list[Block]] = defaultdict(list)
        for block in self._walk_blocks():
            if block.inside is not None:
                blocks[block.inside].append(block)
        return blocks

    def _walk_blocks(self) -> Iterator[Block]:
        for execution in self._numbered.executions:
            yield from execution.blocks

    def find(self, instruction: Instruction, numbers: Sequence[int]) -> list[Instruction]:
        """Return the kernels that compute one of ``numbers``, or else hold this name."""
        for number in numbers:
            if number in self.kernels:
                return self.kernels[number]
        match = self.by_name.get(instruction.name)
        return [match] if match is not None else []

    def following(self, kernel: Instruction, number: int) -> list[int]:
        """Return the values that ``kernel`` computes directly from one of its own."""
        if kernel not in self._following:
            readers: dict[int, list[int]] = defaultdict(list)
            for read, reader in self._executions[kernel].joined.get(kernel, ()):
                readers[read].append(reader)
            self._following[kernel] = readers
        return self._following[kernel].get(number, [])

    def reads(self, kernel: Instruction, number: int) -> list[int]:
        """Return the values that ``kernel`` computes directly from a value."""
        if kernel not in self._read:
            readers: dict[int, list[int]] = defaultdict(list)
            if kernel in self._executions:  # not a tuple
                for read, reader in self._executions[kernel].edges.get(kernel, ()):
                    readers[read].append(reader)
            self._read[kernel] = readers
        return self._read[kernel].get(number, [])

    def sources(self, number: int, kernel: Instruction) -> set[str]:
        """Return the framework's names of the operations by which ``kernel`` computes a value."""
        if kernel not in self._sources:
            names: dict[int, set[str]] = defaultdict(set)
            inside = [
                (instruction, value)
                for block in self._blocks.get(kernel, ())
                for instruction, value in zip(
                    block.computation.instructions, block.values, strict=True
                )
                if instruction.opcode != "parameter"
            ]
            for instruction, value in inside or [(kernel, tuple(self.results[kernel]))]:
                if (name := instruction.op_name) is not None:
                    for part in flatten(value):
                        names[part].add(name)
            self._sources[kernel] = names
        return self._sources[kernel].get(number, set())

    def by_source(self, number: int) -> dict[str, list[Instruction]]:
        """Return the kernels that compute a value, by the framework's names or ""."""
        if number not in self._by_source:
            kernels: dict[str, list[Instruction]] = defaultdict(list)
            for kernel in self.kernels.get(number, ()):
                for name in self.sources(number, kernel) or ("",):
                    kernels[name].append(kernel)
            self._by_source[number] = kernels
        return self._by_source[number]

    def named(self, number: int, name: str) -> Instruction | None:
        """Return the kernel of that name, if it computes the value."""
        if number not in self._by_name:
            self._by_name[number] = {kernel.name: kernel for kernel in self.kernels[number]}
        return self._by_name[number].get(name)

    def readers(self, kernel: Instruction) -> set[Instruction]:
        """Return ``kernel``, the kernels that read a result of it, and the views between them."""
        if kernel not in self._readers:
            self._readers[kernel] = {
                *reachable(
                    [kernel],
                    lambda value: (
                        value.users if value is kernel or is_looked_through(value) else ()
                    ),
                )
            }
        return self._readers[kernel]

    def is_returned(self, kernel: Instruction) -> bool:
        """Return whether a result of ``kernel`` is one of its computation."""
        return any(
            user.is_root
            for user in self.readers(kernel)
            if user is kernel or is_looked_through(user)
        )


def _by_edge(
    of_executions: Iterable[dict[Instruction, set[tuple[int, int]]]],
) -> dict[tuple[int, int], set[Instruction]]:
    kernels: dict[tuple[int, int], set[Instruction]] = defaultdict(set)
    for of_kernels in of_executions:
        for kernel, edges in of_kernels.items():
            for edge in edges:
                kernels[edge].add(kernel)
    return kernels


class _Copies:
    """Tells apart the instructions of the stage before fusion that compute the same
    value.

    Equal values have one number, whichever instruction computes them. The framework's name and the
    uses of the value identify the instruction: a copy of an instruction has the same uses.
    """

    def __init__(self, before: _Stage) -> None:
        self._before = before
        self._unknown: dict[tuple[_Stage, int], list[Instruction]] = {}
        self._alike: dict[tuple[_Stage, Instruction], dict[_Place, bool]] = {}

    def find(self, number: int, producer: Instruction, stage: _Stage) -> Iterator[Instruction]:
        """Yield the kernels of ``stage`` that compute ``number`` in the place of ``producer``."""
        if len(self._before.kernels.get(number, ())) < 2:
            yield from stage.kernels.get(number, ())
            return
        kernels = [
            kernel
            for kernel in self._of_source(number, producer, stage)
            if self._before.named(number, kernel.name) in (producer, None)
            and self._is_used_alike(number, producer, kernel, stage)
        ]
        if 1 < len(kernels) <= _MOST_COPIES:
            alike = [k for k in kernels if self._is_read_alike(number, producer, k, stage)]
            kernels = alike or kernels
        yield from kernels

    def _of_source(
        self, number: int, producer: Instruction, stage: _Stage
    ) -> Sequence[Instruction]:
        """Return the kernels with the source of ``producer``, or with a source that did not exist
        before. Return all if no kernel has the source of ``producer``: instructions may have been
        merged.
        """
        kernels_by_source = stage.by_source(number)
        shared_sources = self._before.sources(number, producer) & kernels_by_source.keys()
        if not shared_sources:
            return stage.kernels.get(number, ())
        if (stage, number) not in self._unknown:
            before = self._before.by_source(number)
            new = (
                kernels_by_source[name]
                for name in kernels_by_source
                if not name or name not in before
            )
            self._unknown[stage, number] = [kernel for kernels in new for kernel in kernels]
        known_kernels = [kernel for name in shared_sources for kernel in kernels_by_source[name]]
        return list(dict.fromkeys([*known_kernels, *self._unknown[stage, number]]))

    def _is_used_alike(
        self, number: int, producer: Instruction, kernel: Instruction, stage: _Stage
    ) -> bool:
        """Return whether a path from the value to a result of ``kernel`` is one of ``producer``."""
        start = number, producer
        alike = self._alike.setdefault((stage, kernel), {})
        if start not in alike:
            self._follow_uses(start, kernel, stage, alike)
        return alike[start]

    def _follow_uses(
        self, start: _Place, kernel: Instruction, stage: _Stage, alike: dict[_Place, bool]
    ) -> None:
        """Add to ``alike`` whether a path leads from each place after ``start`` to a result of
        ``kernel``. Places that are in it already are not followed again.
        """
        before = self._before
        earlier_places: dict[_Place, list[_Place]] = {}

        def steps(place: _Place) -> Iterator[_Place]:
            value, holder = place
            for reader in stage.following(kernel, value):
                for user in before.readers(holder) & before.reading.get((value, reader), set()):
                    earlier_places.setdefault((reader, user), []).append(place)
                    if (reader, user) not in alike:
                        yield reader, user

        def is_last(place: _Place) -> bool:
            value, holder = place
            return (value in stage.results[kernel] and value in before.results[holder]) or (
                not before.kernels.keys() >= {*stage.following(kernel, value)}  # from a later pass
            )

        places = list(reachable([start], steps))
        ends = [place for place in places if is_last(place)]
        ends += [place for place in earlier_places if alike.get(place)]
        leading = set(reachable(ends, lambda place: earlier_places.get(place, ())))
        alike.update((place, place in leading) for place in places)

    def _is_read_alike(
        self, number: int, producer: Instruction, kernel: Instruction, stage: _Stage
    ) -> bool:
        """Return whether a path from the value, through operations that passes inserted and other
        kernels, leads to a value that only one instruction computes, and from ``producer`` too.
        """
        before = self._before
        pending = [(number, number, producer, kernel)]
        visited = set(pending)
        while pending and len(visited) < _MOST_READERS:
            value, value_before, holder, place = pending.pop()
            fresh: set[tuple[int, int, Instruction, Instruction]] = set()
            reached = [(reader, place) for reader in stage.following(place, value)]
            if value in stage.results[place]:
                users = stage.readers(place) - {place}
                reached += [(reader, user) for user in users for reader in stage.reads(user, value)]
                if not reached:  # its computation returns it
                    return before.is_returned(holder)
            for reader, reading in reached:
                if reader not in before.kernels:
                    fresh.add((reader, value_before, holder, reading))
                    continue
                users = before.readers(holder) & before.reading.get((value_before, reader), set())
                if users and len(before.kernels[reader]) == 1:
                    return True
                fresh |= {(reader, reader, user, reading) for user in users}
            fresh -= visited
            visited |= fresh
            pending += fresh
        return bool(pending)


def find_pairs(
    before: NumberedModule, stages: Sequence[tuple[str, NumberedModule]]
) -> tuple[Pair, ...]:
    """Return every pair of ``before`` with its outcome in the last of ``stages``.

    ``stages`` are labels and modules after the passes that form fusions, the final one last, all
    numbered by the ``Numbering`` that numbered ``before``.
    """
    follower = _Follower(before, stages)
    pairs: list[Pair] = []
    for execution in before.executions:
        reads = _list_pairs(execution)
        readings = Counter(chain[0] for _, _, chain in reads)
        moved: dict[Instruction, Traffic] = {}
        for (producer, consumer, chain), read in reads.items():
            for end in (producer, consumer):
                if end not in moved:
                    moved[end] = traffic(end)
            between = moved[consumer].operands.get(read, read.shape.byte_size)
            if readings[chain[0]] == 1 and read not in moved[consumer].updated:
                between += min(read.shape.byte_size, moved[producer].written)
            followed = follower.follow(execution, producer, consumer, chain)
            pairs.append(
                Pair(
                    producer=producer,
                    consumer=consumer,
                    outcome=followed.outcome,
                    kernel=followed.kernel,
                    stage=followed.stage,
                    chain=chain,
                    readers=followed.readers,
                    path=execution.path,
                    bytes_between=between,
                )
            )
    return tuple(pairs)


def pairs_after(before: Module, after: Module) -> tuple[Pair, ...]:
    """Return every pair of ``before``, in the order of its text, with its outcome in ``after``."""
    numbering = Numbering()
    numbered = numbering.number(before)
    return find_pairs(numbered, [("after", numbering.number(after))])


def outcomes_after(before: Module, after: Module) -> tuple[Outcome, ...]:
    """Return the outcomes of ``pairs_after``, without what takes longest: the bytes."""
    numbering = Numbering()
    numbered = numbering.number(before)
    follower = _Follower(numbered, [("after", numbering.number(after))])
    return tuple(
        follower.follow(execution, *pair).outcome
        for execution in numbered.executions
        for pair in _list_pairs(execution)
    )


def count_pairs(before: Module) -> int:
    """Return the number of pairs of ``before``."""
    numbered = Numbering().number(before, contents=False)
    return sum(len(_list_pairs(execution)) for execution in numbered.executions)


def _list_pairs(
    execution: Execution,
) -> dict[tuple[Instruction, Instruction, tuple[int, ...]], Instruction]:
    """Return each producer, consumer and chain of values between them, with the instruction that
    the consumer reads.
    """
    reads: dict[tuple[Instruction, Instruction, tuple[int, ...]], Instruction] = {}
    for consumer in execution.values:
        if not is_looked_through(consumer):
            for producer, chain, read in _producers(execution, consumer):
                reads.setdefault((producer, consumer, chain), read)
    return reads


def _producers(
    execution: Execution, consumer: Instruction
) -> Iterator[tuple[Instruction, tuple[int, ...], Instruction]]:
    """Yield each producer of what ``consumer`` reads, the values between, and the operand."""
    pending: list[tuple[Instruction, tuple[int, ...], Instruction]] = [
        (operand, (), operand) for operand in reversed(consumer.operands)
    ]
    visited: set[tuple[Instruction, tuple[int, ...]]] = set()
    while pending:
        operand, chain, read = pending.pop()
        source = operand
        indices: list[int] = []
        while (
            source.opcode in PASSED_ON
            or source.opcode == "get-tuple-element"
            or (source.opcode == "tuple" and indices)
        ):
            if source.opcode == "get-tuple-element":
                indices.append(int(source.attributes.get("index", "0")))
            index = indices.pop() if source.opcode == "tuple" else 0
            source = source.operands[index]
        if source.opcode == "tuple":
            if (source, chain) not in visited:
                visited.add((source, chain))
                pending.extend((element, chain, element) for element in reversed(source.operands))
        elif is_view(source):
            numbers = tuple(flatten(execution.values.get(source, ())))
            pending.append((source.operands[0], numbers + chain, read))
        elif source.opcode != "parameter":
            for number in flatten(execution.values.get(operand, ())):
                # A bitcast that changes nothing has the number of its operand.
                yield source, tuple(dict.fromkeys((number, *chain))), read


def _readers(
    execution: Execution, consumer: Instruction, value: Value, number: int
) -> tuple[int, ...]:
    """Return the values inside ``consumer`` that are computed directly from ``number``."""
    edges = execution.edges.get(consumer)
    if edges and consumer.opcode in TRANSPARENT:
        return tuple(reader for read, reader in edges if read == number)
    return tuple(flatten(value))


def with_parts(readers: tuple[int, ...], parts: dict[int, set[int]]) -> set[int]:
    """Return ``readers`` and the first halves of those that a pass split."""
    if not parts:
        return set(readers)
    return set(readers).union(*(parts.get(reader, ()) for reader in readers))


class _Followed(NamedTuple):
    """The fate of a pair. The fields are as in ``Pair``."""

    outcome: Outcome
    kernel: Instruction | None
    stage: str | None
    readers: tuple[int, ...]


class _Follower:
    """Follows the pairs of one stage through later ones."""

    def __init__(
        self, before: NumberedModule, stages: Sequence[tuple[str, NumberedModule]]
    ) -> None:
        self._placed = [(label, _Stage(numbered)) for label, numbered in stages]
        self._copies = _Copies(_Stage(before))

    def follow(
        self,
        execution: Execution,
        producer: Instruction,
        consumer: Instruction,
        chain: tuple[int, ...],
    ) -> _Followed:
        placed, copies = self._placed, self._copies
        number = chain[0]
        readers = _readers(execution, consumer, execution.values[consumer], chain[-1])
        final = placed[-1][1]
        producers = final.find(producer, (number,))
        consumers = final.find(consumer, readers)
        if not producers or not consumers:
            return _Followed(Outcome.GONE, None, None, readers)
        kernel = _joined(final, number, readers, consumer, copies)
        is_followed = number in final.kernels and any(reader in final.kernels for reader in readers)
        if kernel is None and not is_followed:
            # Only names identify these. A kernel that holds both a value and its reader has fused
            # them.
            kernel = next(
                (k for k in producers if k in consumers and k.opcode in ("fusion", "async-start")),
                None,
            )
        if kernel is None:
            is_read = any(
                reading in final.reading.get((number, part), ())
                for part in with_parts(readers, final.parts)
                for reading in copies.find(part, consumer, final)
            )
            # If both are there, but one no longer reads the other, the pair is gone. So it is if
            # only an instruction equal to the consumer is there: nothing read the consumer itself.
            outcome = Outcome.GONE if is_followed and not is_read else Outcome.NOT_FUSED
            return _Followed(outcome, None, None, readers)
        own_kernels = copies.find(number, producer, final) if number in final.kernels else producers
        elsewhere = any(
            copy_kernel is not kernel or number in final.results[copy_kernel]
            for copy_kernel in own_kernels
        )
        stage = next(
            (
                label
                for label, where in placed
                if _joined(where, number, readers, consumer, copies) is not None
            ),
            placed[-1][0],
        )
        return _Followed(Outcome.DUPLICATED if elsewhere else Outcome.FUSED, kernel, stage, readers)


def _joined(
    stage: _Stage,
    number: int,
    readers: tuple[int, ...],
    consumer: Instruction,
    copies: _Copies,
) -> Instruction | None:
    """Return the kernel that computes the producer's value and what the consumer
    computes from it.

    A reduction that a pass split reads the value in its first half.
    """
    return next(
        (
            kernel
            for part in with_parts(readers, stage.parts)
            if (joined := stage.joined.get((number, part)))
            for kernel in copies.find(part, consumer, stage)
            if kernel in joined
        ),
        None,
    )
