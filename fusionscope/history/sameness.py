"""Whether two modules say exactly the same: an own check, which knows nothing of the matching.

Two modules are the same where they are equal but for names, notes (``Says.NOTHING``), notation, the
order of the text, and swapped operands of commutative operations. Every instruction gets two
numbers: one for what it computes, from its operands on, and one for what is made of it, from its
users on. The modules are the same where each pair of numbers occurs as often in both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable

from fusionscope.history.meaning import (
    Says,
    is_commutative,
    normal_attributes,
    normal_shape,
    says,
    without_spaces,
)
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import read_names
from fusionscope.hlo.model import Statement


def differing(before: Module, after: Module) -> tuple[list[Instruction], list[Instruction]]:
    """The instructions of each module with which a difference begins: two empty lists where both
    say the same. What reads them differs as well, and is not among them.

    Headers are not compared. Raises ``UnusableInput`` as ``Module.check``.
    """
    before.check()
    after.check()
    numbers = _Numbers(_unprinted(before) == _unprinted(after))
    sides = numbers.module(before), numbers.module(after)
    if sides[0].whole == sides[1].whole:
        return [], []
    one, other = sides[0].begin(sides[1]), sides[1].begin(sides[0])
    if one or other:
        return one, other
    roots = before.entry.root, after.entry.root
    if sides[0].computed[roots[0]] == sides[1].computed[roots[1]]:
        one, other = sides[0].more_often(sides[1]), sides[1].more_often(sides[0])
    return (one, other) if one or other else ([roots[0]], [roots[1]])


def _is_unprinted(statement: Statement) -> bool:
    return statement[3] == "constant" and "..." in statement[4]


def _unprinted(module: Module) -> Counter[tuple[str, str]]:
    """Constants whose values the compiler left out: by names, where both modules use the same."""
    return Counter(
        (statement[1], normal_shape(statement[2]))
        for body in module.bodies
        for statement in body.written
        if _is_unprinted(statement)
    )


class _Side:
    """One module: its instructions with their numbers, and those of its computations."""

    def __init__(self) -> None:
        self.computed: dict[Instruction, int] = {}
        self.numbers: dict[Instruction, tuple[int, int]] = {}
        self.computations: dict[str, int] = {}
        self.whole: Hashable = None

    def begin(self, other: _Side) -> list[Instruction]:
        """What the other module does not have, though it has all that this reads and calls."""
        known, computations = {*other.computed.values()}, {*other.computations.values()}
        return [
            instruction
            for instruction, number in self.computed.items()
            if number not in known
            and all(self.computed[operand] in known for operand in instruction.operands)
            and all(self.computations[each.name] in computations for each in instruction.called)
        ]

    def more_often(self, other: _Side) -> list[Instruction]:
        """What the other module does not compute as often for the same."""
        counts = Counter(self.numbers.values())
        counts.subtract(Counter(other.numbers.values()))
        return [i for i, number in self.numbers.items() if counts[number] > 0][:_MOST]


_MOST = 10


class _Numbers:
    """Numbers that two modules share. ``named``: constants that were left out go by their names."""

    def __init__(self, named: bool) -> None:
        self._named = named
        self._numbers: dict[Hashable, int] = {}
        self._attributes: dict[str, tuple[Hashable, dict[str, str]]] = {}
        self._shapes: dict[str, str] = {}

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def module(self, module: Module) -> _Side:
        side = _Side()
        channels: dict[str, list[tuple[int, Instruction]]] = defaultdict(list)
        for computation in module.computations:  # what is called stands above its callers
            self._computation(computation, side, channels)
        side.whole = (
            side.computations[module.entry.name],
            self._number(tuple(sorted(side.computations.values()))),
            self._number(
                tuple(
                    sorted(
                        self._number(tuple(sorted(side.numbers[i] for _, i in users)))
                        for users in channels.values()
                    )
                )
            ),
        )
        return side

    def _computation(
        self,
        computation: Computation,
        side: _Side,
        channels: dict[str, list[tuple[int, Instruction]]],
    ) -> None:
        graph, instructions = computation.graph, computation.instructions
        computed: list[int] = []
        places: dict[str, int] = {}
        users: list[list[tuple[int, int]]] = [[] for _ in instructions]
        for index, (statement, operands) in enumerate(
            zip(graph.statements, graph.operands, strict=True)
        ):
            said, named = self._said(statement[5])
            read = [computed[operand] for operand in operands]
            slots = [*range(len(read))]
            if len(read) == 2 and is_commutative(statement):
                read.sort()
                slots = [0, 0]
            more: list[Hashable] = []
            for key, value in named.items():
                if says(key) is Says.CALLS:
                    called = (side.computations[name] for name in read_names(value))
                    more.append((key, tuple(called)))
                elif says(key) is Says.CHANNEL:
                    more.append(key)
                    channels[value].append((index, instructions[index]))
                else:
                    before = [places[name] for name in read_names(value)]
                    more.append((key, tuple(sorted(computed[each] for each in before))))
                    for each in before:
                        users[each].append((index, -1))
            number = self._number((self._own(statement), said, tuple(read), tuple(more)))
            computed.append(number)
            side.computed[instructions[index]] = number
            places[statement[1]] = index
            for operand, slot in zip(operands, slots, strict=True):
                users[operand].append((index, slot))
        made = [0] * len(computed)
        for index in range(len(computed) - 1, -1, -1):
            uses = sorted((computed[user], slot, made[user]) for user, slot in users[index])
            made[index] = self._number((index == graph.root, tuple(uses)))
        pairs = [*zip(computed, made, strict=True)]
        side.numbers.update(zip(instructions, pairs, strict=True))
        footer, _ = self._said(computation.body.footer)
        side.computations[computation.name] = self._number(
            (computed[graph.root], tuple(sorted(pairs)), footer)
        )

    def _own(self, statement: Statement) -> Hashable:
        """What an instruction says, but for operands and attributes."""
        shape = self._shapes.get(statement[2])
        if shape is None:
            shape = self._shapes[statement[2]] = normal_shape(statement[2])
        opcode = statement[3]
        if _is_unprinted(statement):
            return opcode, shape, statement[1] if self._named else ...
        if opcode in ("constant", "parameter"):
            return opcode, shape, without_spaces(statement[4])
        return opcode, shape

    def _said(self, attributes: str) -> tuple[Hashable, dict[str, str]]:
        """Attributes as a number, and those that name something apart."""
        known = self._attributes.get(attributes)
        if known is None:
            normal = normal_attributes(attributes)
            named = {key: normal.pop(key) for key in [*normal] if says(key) in _NAMING}
            known = self._attributes[attributes] = (
                self._number(tuple(sorted(normal.items()))),
                dict(sorted(named.items())),
            )
        return known


_NAMING = frozenset({Says.CALLS, Says.CHANNEL, Says.ORDER})
