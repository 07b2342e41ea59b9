"""Which instruction of one module is which of another, from certain to fuzzy.

Modules are held against each other as values flow through them, so that a fusion that is formed,
inlined or split makes no difference to what is in it. Two instructions are matched where they
compute the same from the same; what is left is matched by what is computed from it, by names, by
metadata, and last by the neighbours that were matched before. What reads an instruction that was
matched reads the same as before, so one change does not spread.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from heapq import heappop, heappush
from typing import TypeAlias, TypeVar

from fusionscope.history.flow import Carried, Region, find_regions, positions
from fusionscope.history.operations import COLLECTIVES, RESHAPES, Operations, is_passed_on
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import split_attributes

# Numbers of values, comparable between both modules, in the form of what an instruction carries.
Item = TypeVar("Item")
Values: TypeAlias = "int | tuple[Values, ...]"


class Step(StrEnum):
    """What made a match, the most certain first."""

    VALUE = "value"  # computes the same from the same
    USE = "use"  # the same operation, and all that is computed from it is the same
    NAME = "name"  # same name and opcode, and neighbours that do not object
    METADATA = "metadata"  # the only one of its opcode and shape with this metadata, on both sides
    NEIGHBOURS = "neighbours"  # the likeliest among those that stand between the same
    PLACE = "place"  # no operation: a fusion, parameter or tuple in the same place


CERTAIN = frozenset({Step.VALUE, Step.USE, Step.PLACE})


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """What became of each instruction.

    ``after`` gives for an instruction of the first module the one of the second that it is, and
    ``before`` the other way round. ``copies`` are instructions of the second module that compute
    once more what a matched one computes, ``merged`` those of the first. ``computations`` holds
    the computations that are matched. ``values`` numbers what each instruction carries: equal
    numbers, the same value, or one whose change is told where it happens. ``idle`` operations wait
    to be removed: no result depends on them.
    """

    modules: tuple[Module, Module]
    after: dict[Instruction, Instruction] = field(default_factory=dict)
    before: dict[Instruction, Instruction] = field(default_factory=dict)
    steps: dict[Instruction, Step] = field(default_factory=dict)
    copies: dict[Instruction, Instruction] = field(default_factory=dict)
    merged: dict[Instruction, Instruction] = field(default_factory=dict)
    computations: dict[Computation, Computation] = field(default_factory=dict)
    values: dict[Instruction, Values] = field(default_factory=dict)
    idle: set[Instruction] = field(default_factory=set)
    regions: tuple[dict[Computation, Region], dict[Computation, Region]] = ({}, {})

    @property
    def removed(self) -> Iterator[Instruction]:
        """Instructions of the first module that the second does not have."""
        return (i for i in self.modules[0].walk() if i not in self.after and i not in self.merged)

    @property
    def inserted(self) -> Iterator[Instruction]:
        """Instructions of the second module that the first does not have."""
        return (i for i in self.modules[1].walk() if i not in self.before and i not in self.copies)

    def add(self, one: Instruction, other: Instruction, step: Step) -> None:
        self.after[one], self.before[other], self.steps[one] = other, one, step


def match(before: Module, after: Module) -> Matching:
    """Matches the instructions of two modules. Raises ``UnusableInput`` as ``Module.check``."""
    before.check()
    after.check()
    return _Matcher(before, after).run()


class _Side:
    """One region of one module, with what is known of each of its operations.

    ``kinds`` say what is computed apart from operands, ``values`` what comes out, ``signatures``
    what comes out of the instruction itself where it only passes on a value, ``uses`` what is
    made of it.
    """

    __slots__ = (
        "idle", "kinds", "opcodes", "operations", "outputs", "passed_on", "region", "signatures",
        "sources", "unused", "users", "uses", "values",
    )  # fmt: skip

    def __init__(self, region: Region, kind_of: Callable[[Instruction], int]) -> None:
        self.region = region
        self.operations = region.operations
        self.sources = region.sources
        self.opcodes = [operation.opcode for operation in region.operations]
        self.kinds = [kind_of(operation) for operation in region.operations]
        self.passed_on = [is_passed_on(operation) for operation in region.operations]
        self.signatures: list[int] = []
        self.values: list[int] = []
        self.uses: list[int] = []
        self.unused = -1  # the use of what nothing is made of
        self.users: list[list[tuple[int, int]]] = [[] for _ in region.operations]
        for index, sources in enumerate(region.sources):
            for slot, source in enumerate(sources):
                self.users[source].append((index, slot))
        self.outputs: dict[int, set[int]] = defaultdict(set)
        for slot, output in enumerate(region.outputs):
            self.outputs[output].add(slot)
        self.idle = [False] * len(self.operations)
        for index in range(len(self.operations) - 1, -1, -1):
            self.idle[index] = (
                self.opcodes[index] not in _ACTING
                and index not in self.outputs
                and all(self.idle[user] for user, _ in self.users[index])
            )


# They are executed for more than their result.
_ACTING = frozenset(
    """all-gather-start all-reduce-start async-start call collective-permute-start conditional
    custom-call infeed outfeed parameter recv recv-done send send-done while""".split()
)


class _Matcher:
    def __init__(self, before: Module, after: Module) -> None:
        self._result = Matching(
            (before, after), regions=(find_regions(before), find_regions(after))
        )
        self._operations = Operations()
        self._numbers: dict[Hashable, int] = {}
        # Keys of the second module that turned out to be a number of the first.
        self._known: dict[Hashable, int] = {}
        # How elements of a loop's variables, by number of the loop, are counted in the first.
        self._elements: dict[int, dict[int, int]] = {}
        # Arrays of the first module that are in a tuple in the second: a call that also returns
        # its workspace.
        self._packed: set[int] = set()
        self._kinds: tuple[dict[Hashable, int], dict[Hashable, int]] = ({}, {})
        self._pending: list[tuple[Computation, Computation, dict[int, int]]] = []

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def run(self) -> Matching:
        result = self._result
        before, after = result.modules
        self._match_regions([(before.entry, after.entry, {})])
        # What nothing calls any more, or another instruction does.
        ours, theirs = result.regions
        for describe in (self._operations.expression, lambda computation: computation.name):
            taken = set(result.computations.values())
            left = [
                [c for c in side if c not in done]
                for side, done in ((ours, result.computations), (theirs, taken))
            ]
            pending: list[tuple[Computation, Computation, dict[int, int]]] = [
                (one, other, {})
                for group in _groups(left[0], left[1], describe)
                for one, other in zip(*group, strict=False)
            ]
            self._match_regions(pending)
        self._match_moved()
        return result

    def _match_regions(
        self, pending: list[tuple[Computation, Computation, dict[int, int]]]
    ) -> None:
        """Matches regions, and those that matched operations call."""
        result = self._result
        taken = set(result.computations.values())
        doubles: list[tuple[Computation, Computation, dict[int, int]]] = []
        while pending:
            one, other, elements = pending.pop()
            if one in result.computations or other in taken:
                if result.computations.get(one) is not other:
                    doubles.append((one, other, elements))
                continue
            result.computations[one] = other
            taken.add(other)
            pending.extend(reversed(self._match_region(one, other, elements)))
        for one, other, _ in doubles:
            # A computation that two instructions shared and now have each for themselves, or the
            # other way round.
            if (one in result.computations) != (other in taken):
                self._match_double(one, other, is_copy=other not in taken)

    def _match_double(self, one: Computation, other: Computation, *, is_copy: bool) -> None:
        ours, theirs = one.instructions, other.instructions
        if [i.opcode for i in ours] == [i.opcode for i in theirs]:
            for a, b in zip(ours, theirs, strict=True):
                if is_copy:
                    self._result.copies.setdefault(b, a)
                else:
                    self._result.merged.setdefault(a, b)

    def _kind(self, side: int, instruction: Instruction) -> int:
        """What an instruction computes, apart from its operands."""
        statement = instruction.statement
        opcode = statement.opcode
        # What a bitcast does depends on the shape of its operand as well.
        brief: Hashable = (
            (opcode, statement.shape, statement.attributes)
            if opcode not in RESHAPES and opcode != "constant"
            else None
        )
        known = self._kinds[side].get(brief) if brief is not None else None
        if known is None:
            plain = opcode.removesuffix("-start")
            if plain in COLLECTIVES:  # the result of a start also holds what is sent
                known = self._number(("kind", plain, *self._operations.details(instruction)))
            else:
                known = self._number(("kind", self._operations.key(instruction, ())))
            if brief is not None:
                self._kinds[side][brief] = known
        return known

    def _match_region(
        self, one: Computation, other: Computation, elements: dict[int, int]
    ) -> list[tuple[Computation, Computation, dict[int, int]]]:
        """Matches two regions. Returns the computations that matched operations call, with the
        numbers of the first region's loop variables by those of the second's."""
        result = self._result
        a = _Side(result.regions[0][one], lambda i: self._kind(0, i))
        b = _Side(result.regions[1][other], lambda i: self._kind(1, i))
        given = self._parameters(one, other, elements)
        self._evaluate(a, given[0], {}, is_second=False)
        fixed = dict(given[1])
        self._evaluate(b, fixed, {}, is_second=True)
        self._find_uses(a)
        self._find_uses(b)
        pairs = _Pairs(a, b, self._operations)
        by_number = {number: index for index, number in given[0].items()}
        for index, number in given[1].items():
            if number in by_number:
                pairs.add(by_number[number], index, Step.VALUE)
        pairs.match_values()
        anchored: dict[int, int] = {}
        for step in (
            pairs.match_uses,
            pairs.match_names,
            pairs.match_metadata,
            pairs.match_neighbours,
        ):
            if not pairs.is_complete():
                pairs.look()
                found = step()
                for ours, theirs in found:
                    anchored[theirs] = a.signatures[ours]
                    if a.opcodes[ours] == b.opcodes[theirs] == "while":
                        self._elements[a.signatures[ours]] = _loop_variables(a, b, ours, theirs)
                    if b.operations[theirs].shape.is_tuple > a.operations[ours].shape.is_tuple:
                        self._packed.add(a.signatures[ours])
                if found:
                    self._evaluate(b, fixed, anchored, is_second=True)
                    pairs.match_values()
        computations = _match_computations(a, b)
        result.computations.update(computations)
        pairs.settle(computations)
        self._record(a, b, pairs, computations)
        return self._called(a, b, pairs)

    def _parameters(
        self, one: Computation, other: Computation, elements: dict[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """The numbers of a region's parameters, by their positions among its operations."""
        regions = self._result.regions[0][one], self._result.regions[1][other]
        sides = one.parameters, other.parameters
        described = [
            [(self._operations.plain_shape(p.statement.shape), p.op_name) for p in parameters]
            for parameters in sides
        ]
        path = ("parameter", one.name, len(self._result.computations))
        if len(sides[0]) == len(sides[1]) and (
            len(sides[0]) == 1 or [s for s, _ in described[0]] == [s for s, _ in described[1]]
        ):
            counterparts = {index: index for index in range(len(sides[0]))}
        else:
            blocks = SequenceMatcher(
                None, described[0], described[1], autojunk=False
            ).get_matching_blocks()
            counterparts = {
                block.b + offset: block.a + offset
                for block in blocks
                for offset in range(block.size)
            }
        numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for index, parameter in enumerate(sides[0]):
            position = regions[0].carried[parameter]
            if isinstance(position, int):
                numbers[0][position] = self._number((*path, index))
        for index, parameter in enumerate(sides[1]):
            position = regions[1].carried[parameter]
            if isinstance(position, int):
                key = (*path, counterparts.get(index, ("new", index)))
                number = numbers[1][position] = self._number(key)
                if elements:
                    self._elements[number] = elements
        return numbers

    def _evaluate(
        self, side: _Side, given: dict[int, int], anchored: dict[int, int], *, is_second: bool
    ) -> None:
        """Numbers the values of one region. ``given`` are the numbers of its parameters,
        ``anchored`` those of operations of the first region, for such that stand for them."""
        values: list[int] = []
        signatures: list[int] = []
        numbers, known, elements = self._numbers, self._known, self._elements
        for index, kind in enumerate(side.kinds):
            number = given.get(index)
            if number is None:
                sources = side.sources[index]
                operands = tuple([values[source] for source in sources])
                number = anchored.get(index)
                if is_second and side.opcodes[index] == "get-tuple-element":
                    if operands[0] in self._packed:
                        number = operands[0]
                    elif elements:
                        kind = self._element(side, index, kind, operands[0])
                key = (kind, operands)
                if number is not None:
                    if key not in numbers:
                        known[key] = number
                else:
                    number = known.get(key) if is_second else None
                    if number is None:
                        number = numbers.setdefault(key, len(numbers))
            signatures.append(number)
            values.append(values[side.sources[index][0]] if side.passed_on[index] else number)
        side.values, side.signatures = values, signatures

    def _element(self, side: _Side, index: int, kind: int, loop: int) -> int:
        """The kind of an element of a loop's variables, as the first module counts them."""
        counterparts = self._elements.get(loop)
        if not counterparts:
            return kind
        statement = side.operations[index].statement
        own = int(split_attributes(statement.attributes).get("index", "0"))
        counted = counterparts.get(own, -1 - own)
        if counted == own:
            return kind
        shape = self._operations.plain_shape(statement.shape)
        key = "get-tuple-element", shape, (), (("index", str(counted)),), ()
        return self._number(("kind", key))

    def _find_uses(self, side: _Side) -> None:
        """Numbers what is made of each operation, down to the results of the region."""
        made: list[list[tuple[int, int, int]]] = [[] for _ in side.operations]
        for output, slots in side.outputs.items():
            made[output] += [(-1, slot, 0) for slot in slots]
        side.uses = [0] * len(made)
        side.unused = self._number(("use", ()))
        for index in range(len(made) - 1, -1, -1):
            uses = made[index]
            uses.sort()
            number = side.uses[index] = self._number(("use", tuple(uses)))
            if side.passed_on[index]:
                made[side.sources[index][0]].extend(uses)
                continue
            kind = side.kinds[index]
            for slot, source in enumerate(side.sources[index]):
                made[source].append((kind, slot, number))

    def _record(
        self, a: _Side, b: _Side, pairs: _Pairs, computations: dict[Computation, Computation]
    ) -> None:
        """Puts what was found for two regions into the result."""
        result = self._result
        for side in (a, b):
            for instruction, carried in side.region.carried.items():
                result.values[instruction] = _values(carried, side.values)
            for index, operation in enumerate(side.operations):
                result.values[operation] = side.values[index]
                if side.idle[index]:
                    result.idle.add(operation)
        for ours, (theirs, step) in pairs.mates.items():
            result.add(a.operations[ours], b.operations[theirs], step)
        for theirs, ours in pairs.copies.items():
            result.copies[b.operations[theirs]] = a.operations[ours]
        for ours, theirs in pairs.merged.items():
            result.merged[a.operations[ours]] = b.operations[theirs]
        reverse = {b.region.computation: a.region.computation}
        reverse |= {other: one for one, other in computations.items()}
        callers_of = set(a.region.callers.values()), set(b.region.callers.values())
        for other, one in reverse.items():
            self._match_places(one, other, callers_of)
        for one, other in computations.items():
            callers = a.region.callers.get(one), b.region.callers.get(other)
            if callers[0] is not None and callers[1] is not None:
                result.add(callers[0], callers[1], Step.PLACE)

    def _match_places(
        self,
        one: Computation,
        other: Computation,
        callers_of: tuple[set[Instruction], set[Instruction]],
    ) -> None:
        """Matches what computes nothing in two computations: parameters, tuples, elements."""
        result = self._result
        left = [
            [
                i
                for i in computation.instructions
                if i not in done and i.opcode in _PLACES and i not in callers
            ]
            for computation, done, callers in (
                (one, result.after, callers_of[0]),
                (other, result.before, callers_of[1]),
            )
        ]

        def pair(describe: Callable[[Instruction], Hashable]) -> None:
            for ours, theirs in _groups(left[0], left[1], describe):
                for a, b in zip(ours, theirs, strict=False):
                    result.add(a, b, Step.PLACE)
            for number, done in enumerate((result.after, result.before)):
                left[number] = [i for i in left[number] if i not in done]

        pair(lambda i: (i.opcode, result.values[i], i.is_root, i.name))
        pair(lambda i: (i.opcode, result.values[i], i.is_root))
        pair(lambda i: (i.opcode, i.name))
        pair(lambda i: (i.opcode, i.is_root) if i.is_root else i)

    def _called(
        self, a: _Side, b: _Side, pairs: _Pairs
    ) -> list[tuple[Computation, Computation, dict[int, int]]]:
        called: list[tuple[Computation, Computation, dict[int, int]]] = []
        regions = self._result.regions
        for ours, (theirs, _) in pairs.mates.items():
            one, other = a.operations[ours], b.operations[theirs]
            names = self._operations.called(one.statement)
            if names and self._operations.called(other.statement):
                elements: dict[int, int] = {}
                if one.opcode == "while" and other.opcode == "while":
                    elements = _loop_variables(a, b, ours, theirs)
                for inner, outer in zip(one.called, other.called, strict=False):
                    if inner in regions[0] and outer in regions[1]:
                        called.append((inner, outer, elements))
        return called

    def _match_moved(self) -> None:
        """Matches what kept its name and opcode, and moved into or out of a loop."""
        result = self._result
        by_name = {i.name: i for i in result.inserted}
        for one in list(result.removed):
            other = by_name.get(one.name)
            if other is not None and one.opcode == other.opcode and one.shape == other.shape:
                result.add(one, other, Step.NAME)


# Instructions that compute nothing.
_PLACES = frozenset({"async-start", "call", "fusion", "get-tuple-element", "parameter", "tuple"})


def _values(carried: Carried, values: list[int]) -> Values:
    if isinstance(carried, int):
        return values[carried]
    return tuple([_values(part, values) for part in carried])


def _groups(
    ours: Iterable[Item], theirs: Iterable[Item], describe: Callable[[Item], Hashable]
) -> Iterator[tuple[list[Item], list[Item]]]:
    """What is described alike, on both sides."""
    groups: dict[Hashable, tuple[list[Item], list[Item]]] = {}
    for number, side in enumerate((ours, theirs)):
        for item in side:
            groups.setdefault(describe(item), ([], []))[number].append(item)
    return (group for group in groups.values() if group[0] and group[1])


def _loop_variables(a: _Side, b: _Side, ours: int, theirs: int) -> dict[int, int]:
    """The numbers of a loop's variables in the first module, by those in the second.

    Empty where they are the same. A pass adds variables, or leaves out what does not change.
    """
    sides = [
        [
            (shape.element_type, shape.dimensions, value)
            for shape, value in zip(
                side.operations[index].shape.elements,
                [side.values[source] for source in side.sources[index]],
                strict=False,
            )
        ]
        for side, index in ((a, ours), (b, theirs))
    ]
    if len(sides[0]) == len(sides[1]):
        return {}
    blocks = SequenceMatcher(None, sides[0], sides[1], autojunk=False).get_matching_blocks()
    return {block.b + i: block.a + i for block in blocks for i in range(block.size)}


class _Pairs:
    """The matches of two regions, by positions among their operations."""

    def __init__(self, a: _Side, b: _Side, operations: Operations) -> None:
        self.a, self.b = a, b
        self.mates: dict[int, tuple[int, Step]] = {}
        self.copies: dict[int, int] = {}
        self.merged: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._free: tuple[set[int], set[int]] = (
            set(range(len(a.operations))),
            set(range(len(b.operations))),
        )
        self._new: tuple[set[int], set[int]] = (set(), set())
        self._operations = operations

    def add(self, ours: int, theirs: int, step: Step) -> None:
        self.mates[ours] = theirs, step
        self._taken[theirs] = ours
        self._free[0].discard(ours)
        self._free[1].discard(theirs)

    def look(self) -> None:
        """Notes what only one of the two regions computes, now that values are numbered."""
        self._new = (
            set(self.a.signatures) - set(self.b.signatures),
            set(self.b.signatures) - set(self.a.signatures),
        )

    def _may_differ(self, ours: int, theirs: int) -> bool:
        """Whether one may have become the other: not where both values are still there."""
        return self.a.signatures[ours] in self._new[0] or self.b.signatures[theirs] in self._new[1]

    def is_complete(self) -> bool:
        return not (self._free[0] and self._free[1])

    def _groups(
        self, describe: Callable[[_Side, int], Hashable]
    ) -> list[tuple[list[int], list[int]]]:
        """What is free on both sides and described alike; None describes nothing."""
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for number, side in enumerate((self.a, self.b)):
            for index in sorted(self._free[number]):
                key = describe(side, index)
                if key is not None:
                    groups.setdefault(key, ([], []))[number].append(index)
        return [group for group in groups.values() if group[0] and group[1]]

    def match_values(self) -> None:
        """Pairs what computes the same; of more on one side, the rest stays free."""
        self._pair_values(lambda s, i: (s.signatures[i], s.uses[i], s.idle[i]))
        self._pair_values(lambda s, i: (s.signatures[i], s.operations[i].name, s.idle[i]))
        self._pair_values(lambda s, i: (s.signatures[i], s.idle[i]))
        self._pair_values(lambda s, i: s.signatures[i])

    def _pair_values(self, describe: Callable[[_Side, int], Hashable]) -> None:
        for ours, theirs in self._groups(describe):
            for one, other in zip(ours, theirs, strict=False):
                self.add(one, other, Step.VALUE)

    def match_uses(self) -> list[tuple[int, int]]:
        """Pairs the same operations of which the same is made."""
        found: list[tuple[int, int]] = []
        for ours, theirs in self._groups(
            lambda s, i: (s.kinds[i], s.uses[i]) if s.uses[i] != s.unused else None
        ):
            if len(ours) == len(theirs) == 1 and self._may_differ(ours[0], theirs[0]):
                found.append((ours[0], theirs[0]))
        for one, other in found:
            self.add(one, other, Step.USE)
        return found

    def match_names(self) -> list[tuple[int, int]]:
        """Pairs what kept name and opcode, unless its neighbours object.

        Last comes what kept its name but for the numbers that clones get.
        """
        found: list[tuple[int, int]] = []

        def by_name(side: _Side, index: int) -> Hashable:
            return side.opcodes[index], side.operations[index].name

        def by_stem(side: _Side, index: int) -> Hashable:
            operation = side.operations[index]
            stem = _without_clones(operation.name)
            return side.opcodes[index], stem, operation.shape.dimensions

        for describe in (by_name, by_stem):
            for ours, theirs in self._groups(describe):
                if len(ours) == len(theirs) == 1 and self._is_compatible(ours[0], theirs[0]):
                    found.append((ours[0], theirs[0]))
                    self.add(ours[0], theirs[0], Step.NAME)
        return found

    def _is_compatible(self, ours: int, theirs: int) -> bool:
        if not self._may_differ(ours, theirs):
            return False
        a, b = self.a, self.b
        one, other = a.sources[ours], b.sources[theirs]
        agreeing = sum(
            a.values[s] == b.values[t]
            or _without_clones(a.operations[s].name) == _without_clones(b.operations[t].name)
            for s, t in zip(one, other, strict=False)
        )
        if agreeing and 2 * agreeing >= max(len(one), len(other)):
            return True
        users = {(_without_clones(a.operations[user].name), slot) for user, slot in a.users[ours]}
        if any(
            (_without_clones(b.operations[user].name), slot) in users
            for user, slot in b.users[theirs]
        ):
            return True
        names = a.operations[ours].op_name, b.operations[theirs].op_name
        return names[0] is not None and names[0] == names[1]

    def match_metadata(self) -> list[tuple[int, int]]:
        """Pairs the only ones with an opcode, a shape and a framework's name and line."""
        found: list[tuple[int, int]] = []
        for with_type in (True, False):  # a pass may have changed the precision
            for ours, theirs in self._groups(
                lambda s, i, with_type=with_type: self._metadata(s, i, with_type)  # type: ignore[misc]
            ):
                if len(ours) == len(theirs) == 1:
                    found.append((ours[0], theirs[0]))
                    self.add(ours[0], theirs[0], Step.METADATA)
        return found

    def _metadata(self, side: _Side, index: int, with_type: bool) -> Hashable:
        operation = side.operations[index]
        new = self._new[0] if side is self.a else self._new[1]
        if "metadata" not in operation.statement.attributes or side.signatures[index] not in new:
            return None
        shape = self._operations.plain_shape(operation.statement.shape)
        source = operation.source
        return (
            side.opcodes[index],
            shape if with_type else shape.partition("[")[2],
            operation.op_name,
            source and str(source),
        )

    def match_neighbours(self) -> list[tuple[int, int]]:
        """Pairs what stands between the same, the likeliest first, and goes on from there."""
        found: list[tuple[int, int]] = []
        queue: list[tuple[float, int, int]] = []
        for theirs in sorted(self._free[1]):
            self._suggest(theirs, queue)
        outputs = self.a.region.outputs, self.b.region.outputs
        for one, other in zip(*outputs, strict=False):
            self._push(one, other, queue)
        while queue:
            score, theirs, ours = heappop(queue)
            if theirs not in self._free[1] or ours not in self._free[0]:
                continue
            current = -self._likeness(ours, theirs)
            if current > score:  # a neighbour has found another mate
                if current < 0:
                    heappush(queue, (current, theirs, ours))
                continue
            self.add(ours, theirs, Step.NEIGHBOURS)
            found.append((ours, theirs))
            b = self.b
            around = [*b.sources[theirs], *(user for user, _ in b.users[theirs])]
            for index in dict.fromkeys(around):
                if index in self._free[1]:
                    self._suggest(index, queue)
        return found

    def _push(self, ours: int, theirs: int, queue: list[tuple[float, int, int]]) -> None:
        if ours in self._free[0] and theirs in self._free[1]:
            score = self._likeness(ours, theirs)
            if score > 0:
                heappush(queue, (-score, theirs, ours))

    def _suggest(self, theirs: int, queue: list[tuple[float, int, int]]) -> None:
        """Queues what may be the mate of an operation: neighbours of its neighbours' mates."""
        a, b, free = self.a, self.b, self._free[0]
        suggested: dict[int, None] = {}
        for slot, source in enumerate(b.sources[theirs]):
            mate = self._taken.get(source)
            if mate is not None:
                opcode = b.opcodes[theirs]
                users = [
                    user
                    for user, own in a.users[mate]
                    if user in free and (own == slot or a.opcodes[user] == opcode)
                ]
                suggested.update(dict.fromkeys(users[:_MOST_CANDIDATES]))
        for user, slot in b.users[theirs][:_MOST_CANDIDATES]:
            mate = self._taken.get(user)
            if mate is not None and slot < len(a.sources[mate]):
                suggested[a.sources[mate][slot]] = None
        for ours in suggested:
            self._push(ours, theirs, queue)

    def _likeness(self, ours: int, theirs: int) -> float:
        """How likely one operation is the other; 0 where nothing speaks for it."""
        a, b = self.a, self.b
        one, other = a.operations[ours], b.operations[theirs]
        same_opcode = a.opcodes[ours] == b.opcodes[theirs]
        same_shape = self._operations.plain_shape(
            one.statement.shape
        ) == self._operations.plain_shape(other.statement.shape)
        same_name = one.op_name is not None and one.op_name == other.op_name
        sources, users = self._sources_agree(ours, theirs), self._users_agree(ours, theirs)
        reads = bool(a.sources[ours] or b.sources[theirs])
        if not self._may_differ(ours, theirs):
            # Both values are still there, and one is now read in the place of the other. Where what
            # gives them is the same but for a constant, that is what has changed.
            same = a.kinds[ours] == b.kinds[theirs] if reads else same_opcode and same_shape
            return float(same and users == 1)
        if not same_opcode:
            # Another operation in the same place, from the same operands to the same users.
            if same_shape and users == 1 and (sources == 1 or not reads):
                return 1
            is_call = b.opcodes[theirs] == "custom-call" and other.shape.is_tuple
            return 0.5 * (is_call and same_name and reads and sources == 1)
        score = 3 * sources + 3 * users + 1 + same_shape + same_name
        score += a.kinds[ours] == b.kinds[theirs]
        score += a.uses[ours] == b.uses[theirs]
        score += one.name == other.name
        return score if score >= _LIKELY else 0

    def _sources_agree(self, ours: int, theirs: int) -> float:
        """The share of operands with the same value; in another order they count less."""
        a, b = self.a, self.b
        one = [a.values[source] for source in a.sources[ours]]
        other = [b.values[source] for source in b.sources[theirs]]
        most = max(len(one), len(other), 1)
        in_order = sum(s == t for s, t in zip(one, other, strict=False))
        in_any_order = (Counter(one) & Counter(other)).total()
        return max(in_order, 0.8 * in_any_order) / most

    def _users_agree(self, ours: int, theirs: int) -> float:
        """The share of users that are matched and read it as the same operand."""
        a, b = self.a, self.b
        one, other = a.users[ours], set(b.users[theirs])
        agreeing = sum(
            (self.mates[user][0], slot) in other for user, slot in one if user in self.mates
        )
        outputs = a.outputs.get(ours, set()), b.outputs.get(theirs, set())
        agreeing += len(outputs[0] & outputs[1])
        return agreeing / max(len(one) + len(outputs[0]), len(other) + len(outputs[1]), 1)

    def settle(self, computations: dict[Computation, Computation]) -> None:
        """Tells apart what computes the same by the fusions it is in, and finds copies among what
        is left."""
        a, b = self.a, self.b
        for ours, (theirs, step) in list(self.mates.items()):
            if step is Step.VALUE and a.opcodes[ours] != "parameter":
                del self.mates[ours], self._taken[theirs]
                self._free[0].add(ours)
                self._free[1].add(theirs)

        def home(side: _Side, index: int) -> Computation | None:
            own = side.operations[index].computation
            if side is b or own is a.region.computation:
                return own if side is b and own is not b.region.computation else None
            return computations.get(own, own)

        self._pair_values(lambda s, i: (s.signatures[i], home(s, i), s.uses[i], s.idle[i]))
        self._pair_values(lambda s, i: (s.signatures[i], home(s, i), s.idle[i]))
        self.match_values()
        # A copy is one of what is in the same fusion, if that is there.
        originals: dict[Hashable, int] = {}
        for ours in self.mates:
            originals[a.signatures[ours]] = ours
            originals[a.signatures[ours], home(a, ours)] = ours
        for theirs in self._free[1]:
            number = b.signatures[theirs]
            original = originals.get((number, home(b, theirs)), originals.get(number))
            if original is not None:
                self.copies[theirs] = original
        for ours in self._free[0]:
            number = a.signatures[ours]
            original = originals.get((number, home(a, ours)), originals.get(number))
            if original is not None:
                self.merged[ours] = self.mates[original][0]


def _without_clones(name: str) -> str:
    """``mul.12`` for ``mul.12.5.clone.1``: what the compiler's counters were added to."""
    return re.sub(r"(?<=\d)(\.\d+|\.clone)+$", "", name)


_MOST_CANDIDATES = 32
_LIKELY = 4


class _Held:
    """What a computation of a region (that of a fusion, mostly) computes and gives."""

    __slots__ = ("caller", "is_idle", "members", "outputs", "uses")

    def __init__(self, caller: Instruction) -> None:
        self.caller = caller
        self.members: set[int] = set()
        self.outputs: frozenset[int] = frozenset()
        self.uses: frozenset[int] = frozenset()
        self.is_idle = False


def _held(side: _Side) -> dict[Computation, _Held]:
    found = {computation: _Held(caller) for computation, caller in side.region.callers.items()}
    for index, operation in enumerate(side.operations):
        held = found.get(operation.computation)
        if held is not None:
            held.members.add(side.signatures[index])
    for computation, held in found.items():
        outputs = tuple(positions(side.region.carried[computation.root]))
        held.outputs = frozenset(side.values[output] for output in outputs)
        held.uses = frozenset(side.uses[output] for output in outputs)
        held.is_idle = all(side.idle[output] for output in outputs)
    return found


def _match_computations(a: _Side, b: _Side) -> dict[Computation, Computation]:
    """Which fusion of one region is which of the other: what gives the same is the same."""
    everything = _held(a), _held(b)
    found: dict[Computation, Computation] = {}
    for is_idle in (False, True):  # what is used goes first
        left = [{c: h for c, h in side.items() if h.is_idle is is_idle} for side in everything]
        found |= _pair_held(left)
    left = [
        {c: h for c, h in everything[0].items() if c not in found},
        {c: h for c, h in everything[1].items() if c not in found.values()},
    ]
    return found | _pair_held(left)


def _pair_held(left: list[dict[Computation, _Held]]) -> dict[Computation, Computation]:
    found: dict[Computation, Computation] = {}

    def add(one: Computation, other: Computation) -> None:
        found[one] = other
        del left[0][one], left[1][other]

    def pair(describe: Callable[[_Held], Hashable]) -> None:
        known = left[0] | left[1]
        for ours, theirs in list(_groups(left[0], left[1], lambda c: describe(known[c]))):
            for one, other in zip(ours, theirs, strict=False):
                add(one, other)

    def content(held: _Held) -> Hashable:
        return held.caller.opcode, held.outputs, frozenset(held.members)

    pair(lambda held: (content(held), held.uses, held.caller.name))
    pair(lambda held: (content(held), held.uses))
    pair(lambda held: (content(held), held.caller.name))
    pair(lambda held: (held.caller.opcode, held.outputs, held.caller.name))
    pair(lambda held: (held.caller.opcode, held.outputs))
    holders: dict[int, list[Computation]] = defaultdict(list)
    for computation, held in left[1].items():
        for number in held.members | held.outputs:
            holders[number].append(computation)
    candidates: list[tuple[float, int, Computation, Computation]] = []
    for one, held in left[0].items():
        near: dict[Computation, None] = {}
        for number in held.members | held.outputs:
            if len(holders[number]) <= _MOST_CANDIDATES:
                near.update(dict.fromkeys(holders[number]))
        for other in near:
            score = _overlap(held, left[1][other])
            if score:
                candidates.append((-score, len(candidates), one, other))
    for _, _, one, other in sorted(candidates, key=lambda candidate: candidate[:2]):
        if one in left[0] and other in left[1]:
            add(one, other)
    return found


def _overlap(one: _Held, other: _Held) -> float:
    """How much of two fusions is in both, more where a result or the name is the same; 0 where
    they have neither a result nor half of the smaller one in common."""
    common = len(one.members & other.members)
    same_result = bool(one.outputs & other.outputs)
    if not same_result and 2 * common < min(len(one.members), len(other.members)):
        return 0
    score = common / max(len(one.members | other.members), 1)
    return score + 0.75 * same_result + 0.25 * (one.caller.name == other.caller.name)
