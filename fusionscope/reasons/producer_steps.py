"""Finds the instructions that represent a pair in the stage that the recorded pass worked on.

Between the stage before all fusion and that one, instructions were renamed and some fused.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fusionscope.history.operations import Value, flatten
from fusionscope.history.outcomes import Pair, is_looked_through, with_parts
from fusionscope.history.values import Execution, NumberedModule
from fusionscope.hlo import Instruction

_Indices = tuple[int, ...]
_Readers = Sequence[Mapping[Instruction, None]]
_State = tuple[Instruction, Instruction, Instruction, _Indices]


class UseStep(NamedTuple):
    """The names of an instruction and of a user of it. ``place`` orders the steps of a value."""

    place: int
    producer: str
    consumer: str


@dataclass(slots=True, eq=False)
class Uses:
    """The way of a value to its readers. ``passed_on`` are the steps into bitcasts, ``reads`` those
    into each instruction that computes something from it. The latter include the steps into tuples
    and other instructions on the way that only pass it on.
    """

    passed_on: list[UseStep] = field(default_factory=list)
    reads: dict[Instruction, list[UseStep]] = field(default_factory=dict)
    count: int = 0

    def step(self, producer: Instruction, consumer: Instruction) -> UseStep:
        """Return the next place."""
        self.count += 1
        return UseStep(self.count, producer.name, consumer.name)


class Carriers:
    """Finds the steps from producers to consumers. ``base`` is the stage that the recorded pass
    worked on.
    """

    def __init__(self, base: NumberedModule) -> None:
        self._parts = base.parts
        # The instruction that makes a value, with its indices in a tuple; the one that computes it.
        self._makers: dict[tuple[Hashable, int], list[tuple[Instruction, _Indices]]]
        self._makers = defaultdict(list)
        self._computing: dict[tuple[Hashable, int], dict[Instruction, None]] = defaultdict(dict)
        for execution in base.executions:
            self._add(execution)
        self._uses: dict[tuple[Hashable, int], Uses] = {}
        self._converted: dict[Instruction, Uses] = {}
        self._slots: dict[Instruction, dict[int, list[int]]] = {}
        self._readers: dict[Instruction, tuple[dict[int, list[Instruction]], list[Instruction]]]
        self._readers = {}

    def _add(self, execution: Execution) -> None:
        path = execution.path
        elements: dict[int, Instruction] = {}
        for instruction, value in execution.values.items():
            if not is_looked_through(instruction):
                for number, indices in _places(value):
                    self._makers[path, number].append((instruction, indices))
                    self._computing[path, number][instruction] = None
                for number in execution.computed.get(instruction, ()):
                    self._computing[path, number][instruction] = None
            elif instruction.opcode == "get-tuple-element":
                for number in flatten(value):
                    elements.setdefault(number, instruction)
        for number, element in elements.items():  # of results that are not numbers
            self._makers[path, number].append((element, ()))

    def find(self, pair: Pair) -> tuple[Uses, list[UseStep]]:
        """Return the uses of the producer's value, and those of its steps that end in the consumer.

        A bitcast or tuple in between is a step of its own, and so is a conversion that a pass
        inserted for an operation that the backend lacks in that type.
        """
        keys = ((pair.path, number) for number in pair.chain)
        key = next((key for key in keys if key in self._makers), None)
        if key is None:
            return _NO_USES, []
        uses = self._uses.get(key)
        if uses is None:
            uses = self._uses[key] = self._follow(self._makers[key])
        readers = [
            self._computing.get((pair.path, number), {})
            for number in with_parts(pair.readers, self._parts)
        ]
        steps = _ending_in(uses, readers)
        if not steps:
            steps = self._through_conversions(uses, readers)
        return uses, sorted(steps)

    def _through_conversions(self, uses: Uses, readers: _Readers) -> list[UseStep]:
        steps: list[UseStep] = []
        for conversion, own_steps in uses.reads.items():
            if conversion.opcode == "convert":
                behind = self._converted.get(conversion)
                if behind is None:
                    behind = self._converted[conversion] = self._follow([(conversion, ())])
                ending = _ending_in(behind, readers)
                if ending:
                    steps += own_steps
                    steps += (step._replace(place=uses.count + step.place) for step in ending)
        return steps

    def ends(self, pair: Pair) -> tuple[Instruction | None, Instruction | None]:
        """Return the instruction that makes the producer's value and those that compute with it;
        None if there are none.
        """
        keys = ((pair.path, number) for number in pair.chain)
        makers = next((self._makers[key] for key in keys if key in self._makers), [])
        maker = makers[0][0] if makers else None
        while maker is not None and maker.opcode == "get-tuple-element":
            maker = maker.operands[0]
        if maker is not None and is_looked_through(maker):
            maker = None
        reads = self.find(pair)[0].reads
        for number in with_parts(pair.readers, self._parts):
            for reader in self._computing.get((pair.path, number), ()):
                if reader in reads:
                    return maker, reader
        return maker, None

    def _follow(self, makers: Iterable[tuple[Instruction, _Indices]]) -> Uses:
        """Search breadth first from each instruction that makes the value."""
        uses = Uses()
        for maker, path in makers:
            # The instruction that holds the value, the last one that showed it, its users, the
            # position of the value in a tuple, and the steps into tuples on the way.
            start: list[_State] = [(maker, maker, user, path) for user in self._users(maker, path)]
            pending: deque[tuple[_State, tuple[UseStep, ...]]]
            pending = deque((state, ()) for state in start)
            visited = set(start)
            while pending:
                (read, last, user, indices), packed = pending.popleft()
                if not is_looked_through(user):
                    own_steps = uses.reads.setdefault(user, [])
                    own_steps += packed
                    own_steps.append(uses.step(read, user))
                    if last is not read:
                        own_steps.append(uses.step(last, user))
                    continue
                ways = [indices]
                if user.opcode in ("bitcast", "reshape"):
                    uses.passed_on.append(uses.step(read, user))
                    read = user
                else:
                    packed = (*packed, uses.step(last, user))
                    if user.opcode == "tuple":
                        ways = [(slot, *indices) for slot in self._slots_of(user, last)]
                    elif user.opcode == "get-tuple-element":
                        ways = [indices[1:]]
                for way in ways:
                    for reader in self._users(user, way):
                        state = (read, user, reader, way)
                        if state not in visited:
                            visited.add(state)
                            pending.append((state, packed))
        return uses

    def _slots_of(self, user: Instruction, operand: Instruction) -> list[int]:
        """Return the operand numbers at which a tuple has an operand."""
        slots = self._slots.get(user)
        if slots is None:
            slots = self._slots[user] = defaultdict(list)
            for slot, index in enumerate(user.computation.graph.operands[user.index]):
                slots[index].append(slot)
        return slots[operand.index]

    def _users(self, instruction: Instruction, indices: _Indices) -> list[Instruction]:
        """Return the readers of the part of ``instruction`` at ``indices``, or of all of it."""
        users_of = self._readers.get(instruction)
        if users_of is None:
            of_element: dict[int, list[Instruction]] = defaultdict(list)
            of_all: list[Instruction] = []
            for user in instruction.users:
                if user.opcode == "get-tuple-element":
                    of_element[int(user.attributes.get("index", "0"))].append(user)
                else:
                    of_all.append(user)
            users_of = self._readers[instruction] = of_element, of_all
        of_element, of_all = users_of
        if not of_element:
            return of_all
        if not indices:
            return list(instruction.users)
        users_of_element = of_element.get(indices[0], [])
        return sorted((*users_of_element, *of_all), key=lambda user: user.index)


_NO_USES = Uses()


def _ending_in(uses: Uses, readers: _Readers) -> list[UseStep]:
    """Return the steps that end in one of ``readers``."""
    steps: list[UseStep] = []
    if sum(map(len, readers)) < len(uses.reads):
        for reader in {reader: None for readers_of in readers for reader in readers_of}:
            steps += uses.reads.get(reader, ())
    else:
        for reader, own_steps in uses.reads.items():
            if any(reader in readers_of for readers_of in readers):
                steps += own_steps
    return steps


def _places(value: Value) -> list[tuple[int, _Indices]]:
    """Yield the numbers in a value, each with its indices."""
    if isinstance(value, int):
        return [(value, ())]
    places: list[tuple[int, _Indices]] = []
    pending: list[tuple[Value, _Indices]] = [(value, ())]
    while pending:
        part, indices = pending.pop()
        if isinstance(part, int):
            places.append((part, indices))
        else:
            pending.extend(
                (element, (*indices, index)) for index, element in reversed(list(enumerate(part)))
            )
    return places
