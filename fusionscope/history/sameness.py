"""Checks whether two modules are the same, independently of the matching.

Two modules are the same if they are equal apart from names, notes
(``AttributeMeaning.NOTHING``), notation, the order of the text, and swapped operands of commutative
operations. Every instruction gets two numbers: one for what it computes, from its operands on,
and one for its uses, from its users on.
The modules are the same if their computations have the same pairs of numbers. It does not matter
whether two callers share a computation or call two equal ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from fusionscope.grouping import Numbers
from fusionscope.history.meaning import (
    AttributeMeaning,
    is_commutative,
    normal_attributes,
    normal_constant,
    normal_shape,
    says,
    without_spaces,
)
from fusionscope.history.operations import elided_shapes, plain_shape
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import read_names
from fusionscope.hlo.model import Statement


@dataclass(frozen=True, slots=True)
class Sameness:
    """The result of ``check_sameness``. ``begins`` holds the instructions of each module at which a
    difference begins, without their users. ``is_swapped`` is whether modules that are the same have
    an operation with swapped operands.
    """

    begins: tuple[list[Instruction], list[Instruction]]
    is_swapped: bool

    @property
    def is_same(self) -> bool:
        return not any(self.begins)


def check_sameness(before: Module, after: Module) -> Sameness:
    """Compare two modules, headers excluded. Both must be consistent (``Module.check``)."""
    elided = elided_shapes(before, after)
    names = [_elided_names(module, elided) for module in (before, after)]
    numbers = _Numbers(elided, by_name=names[0] == names[1])
    old, new = numbers.module(before), numbers.module(after)
    if old.whole == new.whole:
        return Sameness(([], []), old.ordered != new.ordered)
    begins = old.begin(new), new.begin(old)
    if not any(begins):
        roots = before.entry.root, after.entry.root
        if old.computed(roots[0]) == new.computed(roots[1]):
            begins = old.more_often(new), new.more_often(old)
        if not any(begins):
            begins = [roots[0]], [roots[1]]
    return Sameness(begins, is_swapped=False)


def _elided_names(module: Module, elided: frozenset[str]) -> Counter[tuple[str, str]]:
    """Return the names and shapes of constants of the shapes that one of the modules omits."""
    if not elided:
        return Counter()
    return Counter(
        (statement[1], normal_shape(statement[2]))
        for body in module.bodies
        for statement in body.written
        if statement[3] == "constant" and plain_shape(statement[2]) in elided
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    """The numbers of one computation, and for each of its instructions what it computes and its
    uses.

    ``ordered`` holds the operands of commutative operations in the order of the text, ``channels``
    the positions of instructions by channel.
    """

    number: int
    computed: list[int]
    made: list[int]
    ordered: list[tuple[int, ...]]
    channels: list[tuple[str, int]]


@dataclass(slots=True, eq=False)
class _Side:
    """One module with its numbers."""

    bodies: dict[Computation, _Body] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    whole: Hashable = None

    @property
    def ordered(self) -> set[tuple[int, tuple[tuple[int, ...], ...]]]:
        """The operands of commutative operations in the order of the text, by computation."""
        return {(body.number, tuple(body.ordered)) for body in self.bodies.values()}

    def computed(self, instruction: Instruction) -> int:
        return self.bodies[instruction.computation].computed[instruction.index]

    def begin(self, second: _Side) -> list[Instruction]:
        """Return the instructions that the other module lacks, though it has all their operands and
        called computations.
        """
        numbers = {number for body in second.bodies.values() for number in body.computed}
        names_called = {*second.names.values()}
        return [
            computation.instructions[index]
            for computation, body in self.bodies.items()
            for index, number in enumerate(body.computed)
            if number not in numbers
            and all(body.computed[o] in numbers for o in computation.graph.operands[index])
            and all(
                self.names[callee.name] in names_called
                for callee in computation.instructions[index].called
            )
        ]

    def more_often(self, second: _Side) -> list[Instruction]:
        """Return the instructions that the other module has less often with the same uses."""
        counts = Counter(number for number, _ in self._numbers())
        counts.subtract(number for number, _ in second._numbers())
        return [instruction for number, instruction in self._numbers() if counts[number] > 0][
            :_MOST
        ]

    def _numbers(self) -> Iterator[tuple[tuple[int, int], Instruction]]:
        """Yield the numbers of all instructions, those of equal computations once."""
        unlike = {body.number: (computation, body) for computation, body in self.bodies.items()}
        for computation, body in unlike.values():
            numbers = zip(body.computed, body.made, strict=True)
            yield from zip(numbers, computation.instructions, strict=True)


_MOST = 10


class _Numbers:
    """The numbers that two modules share. Constants of the shapes in ``elided`` are identified by
    their names if both modules use the same, ``by_name``, and otherwise by their shapes alone.
    """

    def __init__(self, elided: frozenset[str], *, by_name: bool) -> None:
        self._elided = elided
        self._named = by_name
        self._numbers = Numbers()
        self._bodies: dict[Hashable, _Body] = {}
        self._attributes: dict[str, tuple[int, dict[str, str]]] = {}
        self._shapes: dict[str, str] = {}

    def module(self, module: Module) -> _Side:
        side = _Side()
        channels: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for computation in module.computations:  # called computations precede their callers
            body = computation.body
            callees = tuple([side.names[name] for name in body.calls])
            key = body.written, body.footer, callees
            body_number = self._bodies.get(key)
            if body_number is None:
                body_number = self._bodies[key] = self._body(computation, side.names)
            side.bodies[computation] = body_number
            side.names[computation.name] = body_number.number
            for channel, index in body_number.channels:
                channels[channel].append((body_number.computed[index], body_number.made[index]))
        side.whole = (
            side.names[module.entry.name],
            frozenset(side.names.values()),  # equal computations may be one
            sorted(sorted(users) for users in channels.values()),
        )
        return side

    def _body(self, computation: Computation, names: dict[str, int]) -> _Body:
        graph = computation.graph
        computed: list[int] = []
        ordered: list[tuple[int, ...]] = []
        channels: list[tuple[str, int]] = []
        places: dict[str, int] = {}
        users: list[list[tuple[int, int]]] = [[] for _ in graph.statements]
        for index, (statement, operands) in enumerate(
            zip(graph.statements, graph.operands, strict=True)
        ):
            attributes_number, naming = self._said(statement[5])
            read = [computed[operand] for operand in operands]
            slots: tuple[int, ...] | range = range(len(read))
            if is_commutative(statement) and len(read) == 2:
                ordered.append(tuple(read))
                read.sort()
                slots = (0, 0)
            more: list[Hashable] = []
            for key, value in naming.items():
                if says(key) is AttributeMeaning.CALLS:
                    more.append((key, tuple([names[name] for name in read_names(value)])))
                elif says(key) is AttributeMeaning.CHANNEL:
                    more.append(key)
                    channels.append((value, index))
                else:
                    before = [places[name] for name in read_names(value)]
                    more.append((key, tuple(sorted(computed[operand] for operand in before))))
                    for operand in before:
                        users[operand].append((index, -1))
            number = self._numbers[
                self._own(statement), attributes_number, tuple(read), tuple(more)
            ]
            computed.append(number)
            places[statement[1]] = index
            for operand, slot in zip(operands, slots, strict=True):
                users[operand].append((index, slot))
        user_numbers = [0] * len(computed)
        for index in range(len(computed) - 1, -1, -1):
            uses = sorted(
                [(computed[user], slot, user_numbers[user]) for user, slot in users[index]]
            )
            user_numbers[index] = self._numbers[index == graph.root, tuple(uses)]
        pairs = sorted(zip(computed, user_numbers, strict=True))
        footer, _ = self._said(computation.body.footer)
        number = self._numbers[computed[graph.root], tuple(pairs), footer]
        return _Body(number, computed, user_numbers, ordered, channels)

    def _own(self, statement: Statement) -> Hashable:
        """Return a key of an instruction, without operands and attributes."""
        shape = self._shapes.get(statement[2])
        if shape is None:
            shape = self._shapes[statement[2]] = normal_shape(statement[2])
        opcode = statement[3]
        if opcode == "constant":
            if self._elided and plain_shape(statement[2]) in self._elided:
                return opcode, shape, statement[1] if self._named else ...
            return opcode, shape, normal_constant(statement)
        if opcode == "parameter":
            return opcode, shape, without_spaces(statement[4])
        return opcode, shape

    def _said(self, attributes: str) -> tuple[Hashable, dict[str, str]]:
        """Return attributes as a key, and separately those that name something."""
        entry = self._attributes.get(attributes)
        if entry is None:
            normal = normal_attributes(attributes)
            naming = {key: normal.pop(key) for key in [*normal] if says(key) in _NAMING}
            entry = self._attributes[attributes] = (
                self._numbers[tuple(sorted(normal.items()))],
                dict(sorted(naming.items())),
            )
        return entry


_NAMING = frozenset({AttributeMeaning.CALLS, AttributeMeaning.CHANNEL, AttributeMeaning.ORDER})
