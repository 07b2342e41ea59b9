"""Pairs the operations of two regions step by step, from certain pairs to fuzzy ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from heapq import heappop, heappush
from typing import TypeVar

from fusionscope.history.flow import Region
from fusionscope.history.operations import Operations, plain_shape
from fusionscope.hlo import Computation, Instruction

Item = TypeVar("Item")


class MatchKind(StrEnum):
    """The evidence for a match, the most certain first."""

    VALUE = "value"  # computes the same from the same operands
    USE = "use"  # the same operation, with the same uses
    NAME = "name"  # same name and opcode, and no contradicting neighbour
    METADATA = "metadata"  # the only one of its opcode and shape with this metadata, on both sides
    NEIGHBOURS = "neighbours"  # the likeliest between the same neighbours
    PLACE = "place"  # not an operation: a fusion, parameter or tuple in the same place


CERTAIN = frozenset({MatchKind.VALUE, MatchKind.USE, MatchKind.PLACE})


class Side:
    """One of the two regions, with facts about each of its operations.

    ``kinds`` number what an operation computes apart from its operands, ``values`` number its
    results. ``signatures`` number an operation itself if it only passes a value on. ``uses`` number
    its uses; ``unused`` is the number for no use. ``unprinted`` are the names of constants whose
    values the compiler omitted.
    """

    __slots__ = (
        "_laid_out", "commutative", "idle", "kinds", "opcodes", "operations", "outputs",
        "passed_on", "region", "signatures", "sources", "unprinted", "unused", "uses",
        "values",
    )  # fmt: skip

    def __init__(
        self,
        region: Region,
        kinds: list[int],
        unprinted: dict[int, str],
        laid_out: Callable[[str], str],
    ) -> None:
        self.region = region
        self.operations = region.operations
        self.opcodes = region.opcodes
        self.sources = region.sources
        self.outputs = region.outputs
        self.commutative = region.commutative
        self.passed_on = region.passed_on
        self.idle = region.idle
        self.kinds = kinds
        self.unprinted = unprinted
        self._laid_out = laid_out
        self.signatures: list[int] = []
        self.values: list[int] = []
        self.uses: list[int] = []
        self.unused = -1

    @property
    def users(self) -> list[list[tuple[int, int]]]:
        return self.region.users

    def shape(self, index: int) -> str:
        """Return the shape of an operation, with layouts."""
        return self._laid_out(self.region.statements[index].shape)


def unprinted(region: Region, keys: Operations) -> dict[int, str]:
    """Return the names of constants whose values the compiler omitted, by their positions."""
    return {
        index: re.sub(r"[.\-]", "_", statement.name)
        for index, statement in enumerate(region.statements)
        if keys.is_elided(statement)
    }


def groups(
    ours: Iterable[Item], theirs: Iterable[Item], describe: Callable[[Item], Hashable]
) -> Iterator[tuple[list[Item], list[Item]]]:
    """Yield the items of both sides that have the same description."""
    sides: dict[Hashable, tuple[list[Item], list[Item]]] = {}
    for number, side in enumerate((ours, theirs)):
        for item in side:
            sides.setdefault(describe(item), ([], []))[number].append(item)
    return (group for group in sides.values() if group[0] and group[1])


class Pairs:
    """The matches of two regions, by positions among their operations."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.mates: dict[int, tuple[int, MatchKind]] = {}
        self.copies: dict[int, int] = {}
        self.merged: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._free: tuple[set[int], set[int]] = (
            set(range(len(a.operations))),
            set(range(len(b.operations))),
        )
        self._new: tuple[set[int], set[int]] = (set(), set())
        self._is_complete = False

    def add(self, ours: int, theirs: int, step: MatchKind) -> None:
        self.mates[ours] = theirs, step
        self._taken[theirs] = ours
        self._free[0].discard(ours)
        self._free[1].discard(theirs)

    def look(self) -> None:
        """Record the values that only one of the two regions computes."""
        self._new = (
            set(self.a.signatures) - set(self.b.signatures),
            set(self.b.signatures) - set(self.a.signatures),
        )

    def _may_differ(self, ours: int, theirs: int) -> bool:
        """Return whether one may have become the other: not if both values still exist."""
        return self.a.signatures[ours] in self._new[0] or self.b.signatures[theirs] in self._new[1]

    def is_complete(self) -> bool:
        """Return whether all operations of a side are matched, or will be by their values alone."""
        return self._is_complete or not (self._free[0] and self._free[1])

    def _groups(
        self, describe: Callable[[Side, int], Hashable]
    ) -> list[tuple[list[int], list[int]]]:
        """Return the free operations of both sides by description. None describes nothing."""
        if self.is_complete():
            return []
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for number, side in enumerate((self.a, self.b)):
            for index in sorted(self._free[number]):
                key = describe(side, index)
                if key is not None:
                    groups.setdefault(key, ([], []))[number].append(index)
        return [group for group in groups.values() if group[0] and group[1]]

    def match_values(self, *descriptions: Callable[[Side, int], Hashable]) -> None:
        """Pair operations that compute the same. If one side has more, the rest stays free.

        Where there are several, those go together that have equal ``descriptions``, by one after
        the other, then those of the same uses, shape or name, and last any. Without
        ``descriptions``, they are left to ``settle`` if then nothing else is left on a side.
        """
        left = self._match_single_values()
        values = self.a.signatures, self.b.signatures
        counts = [
            Counter([side[index] for index in indices])
            for side, indices in zip(values, left, strict=True)
        ]
        alike = sum(min(count, counts[1][value]) for value, count in counts[0].items())
        self._is_complete = alike in map(len, self._free)
        if descriptions or not self._is_complete:
            self._match_alike(left, (*descriptions, *_DESCRIPTIONS))

    def _match_single_values(self) -> list[list[int]]:
        """Pair free operations if no other one computes the same. Return, for both sides, those of
        which there are several.
        """
        free, values = self._free, (self.a.signatures, self.b.signatures)
        single: tuple[dict[int, int], dict[int, int]] = ({}, {})
        several: set[int] = set()
        for number, side in enumerate(values):
            first_index = single[number]
            for index in sorted(free[number]):
                if first_index.setdefault(side[index], index) != index:
                    several.add(side[index])
        several &= single[0].keys() & single[1].keys()
        for value, ours in single[0].items():
            theirs = single[1].get(value)
            if theirs is not None and value not in several:
                self.add(ours, theirs, MatchKind.VALUE)
        return [
            [index for index in sorted(free[number]) if side[index] in several]
            for number, side in enumerate(values)
        ]

    def _match_alike(
        self,
        left: Sequence[Sequence[int]],
        descriptions: Iterable[Callable[[Side, int], Hashable]],
    ) -> None:
        """Pair operations that compute the same, by one description after the other."""
        sides, free = (self.a, self.b), self._free
        for describe in descriptions:
            alike: dict[Hashable, tuple[list[int], list[int]]] = {}
            left = [
                [index for index in indices if index in free[number]]
                for number, indices in enumerate(left)
            ]
            if not all(left):
                return
            for number, side in enumerate(sides):
                for index in left[number]:
                    key = side.signatures[index], describe(side, index)
                    alike.setdefault(key, ([], []))[number].append(index)
            for ours, theirs in alike.values():
                for ours_one, theirs_one in zip(ours, theirs, strict=False):
                    self.add(ours_one, theirs_one, MatchKind.VALUE)

    def match_uses(self) -> list[tuple[int, int]]:
        """Pair equal operations that have the same uses."""
        pairs: list[tuple[int, int]] = []
        for ours, theirs in self._groups(
            lambda s, i: (s.kinds[i], s.uses[i]) if s.uses[i] != s.unused else None
        ):
            if len(ours) == len(theirs) == 1 and self._may_differ(ours[0], theirs[0]):
                pairs.append((ours[0], theirs[0]))
        for ours_one, theirs_one in pairs:
            self.add(ours_one, theirs_one, MatchKind.USE)
        return pairs

    def match_names(self) -> list[tuple[int, int]]:
        """Pair operations that kept name and opcode, unless their neighbours
        contradict.

        Operations whose names differ only in the numbers of clones come last.
        """
        pairs: list[tuple[int, int]] = []

        def by_name(side: Side, index: int) -> Hashable:
            return side.opcodes[index], side.operations[index].name

        def by_stem(side: Side, index: int) -> Hashable:
            operation = side.operations[index]
            stem = _without_clones(operation.name)
            return side.opcodes[index], stem, operation.shape.dimensions

        for describe in (by_name, by_stem):
            for ours, theirs in self._groups(describe):
                if len(ours) == len(theirs) == 1 and self._is_compatible(ours[0], theirs[0]):
                    pairs.append((ours[0], theirs[0]))
                    self.add(ours[0], theirs[0], MatchKind.NAME)
        return pairs

    def _is_compatible(self, ours: int, theirs: int) -> bool:
        a, b = self.a, self.b
        if not self._may_differ(ours, theirs) or _is_another(
            a.operations[ours], b.operations[theirs]
        ):
            return False
        our_sources, their_sources = a.sources[ours], b.sources[theirs]
        agreeing = sum(
            a.values[s] == b.values[t]
            or _without_clones(a.operations[s].name) == _without_clones(b.operations[t].name)
            for s, t in zip(our_sources, their_sources, strict=False)
        )
        if agreeing and 2 * agreeing >= max(len(our_sources), len(their_sources)):
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
        """Pair operations that alone have an opcode, a shape, and a framework's name and line."""
        pairs: list[tuple[int, int]] = []
        for with_type in (True, False):  # a pass may have changed the precision
            for ours, theirs in self._groups(partial(self._metadata, with_type=with_type)):
                if len(ours) == len(theirs) == 1:
                    pairs.append((ours[0], theirs[0]))
                    self.add(ours[0], theirs[0], MatchKind.METADATA)
        return pairs

    def _metadata(self, side: Side, index: int, with_type: bool) -> Hashable:
        operation = side.operations[index]
        new = self._new[0] if side is self.a else self._new[1]
        if "metadata" not in operation.statement.attributes or side.signatures[index] not in new:
            return None
        shape = plain_shape(operation.statement.shape)
        source = operation.source
        return (
            side.opcodes[index],
            shape if with_type else shape.partition("[")[2],
            operation.op_name,
            source and str(source),
        )

    def match_neighbours(self) -> list[tuple[int, int]]:
        """Pair operations with the same neighbours, the likeliest first, and go on from there."""
        pairs: list[tuple[int, int]] = []
        queue: list[tuple[float, int, int]] = []
        for theirs in sorted(self._free[1]):
            self._suggest(theirs, queue)
        results = {slot: index for index, slots in self.a.outputs.items() for slot in slots}
        for theirs, slots in self.b.outputs.items():
            for slot in slots & results.keys():
                self._push(results[slot], theirs, queue)
        while queue:
            score, theirs, ours = heappop(queue)
            if theirs not in self._free[1] or ours not in self._free[0]:
                continue
            current = -self._likeness(ours, theirs)
            if current > score:  # a neighbour has found another mate
                if current < 0:
                    heappush(queue, (current, theirs, ours))
                continue
            self.add(ours, theirs, MatchKind.NEIGHBOURS)
            pairs.append((ours, theirs))
            b = self.b
            around = [*b.sources[theirs], *(user for user, _ in b.users[theirs])]
            for index in dict.fromkeys(around):
                if index in self._free[1]:
                    self._suggest(index, queue)
        return pairs

    def _push(self, ours: int, theirs: int, queue: list[tuple[float, int, int]]) -> None:
        if ours in self._free[0] and theirs in self._free[1]:
            score = self._likeness(ours, theirs)
            if score > 0:
                heappush(queue, (-score, theirs, ours))

    def _suggest(self, theirs: int, queue: list[tuple[float, int, int]]) -> None:
        """Queue possible mates of an operation: neighbours of its neighbours' mates."""
        a, b, free = self.a, self.b, self._free[0]
        suggested: dict[int, None] = {}
        for slot, source in enumerate(b.sources[theirs]):
            mate = self._taken.get(source)
            if mate is not None and len(a.users[mate]) <= _MOST_USERS:
                opcode = b.opcodes[theirs]
                users = [
                    user
                    for user, own_slot in a.users[mate]
                    if user in free and (own_slot == slot or a.opcodes[user] == opcode)
                ]
                suggested.update(dict.fromkeys(users[:_MOST_CANDIDATES]))
        for user, slot in b.users[theirs][:_MOST_CANDIDATES]:
            mate = self._taken.get(user)
            if mate is not None and slot < len(a.sources[mate]):
                suggested[a.sources[mate][slot]] = None
        for ours in suggested:
            self._push(ours, theirs, queue)

    def _likeness(self, ours: int, theirs: int) -> float:
        """Return a score for two operations being the same; 0 if nothing supports it."""
        a, b = self.a, self.b
        old, new = a.operations[ours], b.operations[theirs]
        if _is_another(old, new):
            return 0
        same_opcode = a.opcodes[ours] == b.opcodes[theirs]
        same_shape = plain_shape(old.statement.shape) == plain_shape(new.statement.shape)
        same_name = old.op_name is not None and old.op_name == new.op_name
        sources, users = self._sources_agree(ours, theirs), self._users_agree(ours, theirs)
        reads = bool(a.sources[ours] or b.sources[theirs])
        if not self._may_differ(ours, theirs):
            # Both values still exist, and one is now read in the place of the other. If the
            # operations that give them differ only in a constant, that constant has changed.
            same = a.kinds[ours] == b.kinds[theirs] if reads else same_opcode and same_shape
            return float(same and users == 1)
        if not same_opcode:
            # Another operation in the same place, with the same operands and users.
            if same_shape and users == 1 and (sources == 1 or not reads):
                return 1
            is_call = b.opcodes[theirs] == "custom-call" and new.shape.is_tuple
            return 0.5 * (is_call and same_name and reads and sources == 1)
        score = 3 * sources + 3 * users + 1 + same_shape + same_name
        score += a.kinds[ours] == b.kinds[theirs]
        score += a.uses[ours] == b.uses[theirs]
        score += old.name == new.name
        return score if score >= _LIKELY else 0

    def _sources_agree(self, ours: int, theirs: int) -> float:
        """Return the share of operands with the same value; those in another order count less."""
        a, b = self.a, self.b
        our_values = [a.values[source] for source in a.sources[ours]]
        their_values = [b.values[source] for source in b.sources[theirs]]
        most = max(len(our_values), len(their_values), 1)
        in_order = sum(s == t for s, t in zip(our_values, their_values, strict=False))
        in_any_order = (Counter(our_values) & Counter(their_values)).total()
        return max(in_order, 0.8 * in_any_order) / most

    def _users_agree(self, ours: int, theirs: int) -> float:
        """Return the share of users that are matched and read it as the same operand."""
        a, b = self.a, self.b
        our_users, their_users = a.users[ours], set(b.users[theirs])
        agreeing = sum(
            (self.mates[user][0], slot) in their_users
            for user, slot in our_users
            if user in self.mates
        )
        outputs = a.outputs.get(ours, set()), b.outputs.get(theirs, set())
        agreeing += len(outputs[0] & outputs[1])
        return agreeing / max(
            len(our_users) + len(outputs[0]), len(their_users) + len(outputs[1]), 1
        )

    def settle(self, computations: dict[Computation, Computation]) -> None:
        """Distinguish operations that compute the same by their fusions, and find copies among the
        remaining ones.
        """
        a, b = self.a, self.b
        counts = Counter(a.signatures), Counter(b.signatures)
        for ours, (theirs, step) in list(self.mates.items()):
            number = a.signatures[ours]
            ambiguous = counts[0][number] > 1 or counts[1][number] > 1
            if step is MatchKind.VALUE and ambiguous and a.opcodes[ours] != "parameter":
                del self.mates[ours], self._taken[theirs]
                self._free[0].add(ours)
                self._free[1].add(theirs)

        def home(side: Side, index: int) -> Computation | None:
            own = side.operations[index].computation
            if side is b or own is a.region.computation:
                return own if side is b and own is not b.region.computation else None
            return computations.get(own, own)

        self.match_values(
            lambda s, i: (home(s, i), s.uses[i], s.idle[i], s.shape(i)),
            lambda s, i: (home(s, i), s.uses[i], s.idle[i]),
            lambda s, i: (home(s, i), s.idle[i]),
        )
        # The original of a copy is in the same fusion, if possible.
        signatures = {a.signatures[index] for index in self._free[0]}
        signatures.update(b.signatures[index] for index in self._free[1])
        originals: dict[Hashable, int] = {}
        for ours in self.mates if signatures else ():
            if a.signatures[ours] in signatures:
                originals[a.signatures[ours]] = ours
                originals[a.signatures[ours], home(a, ours)] = ours
        for theirs in sorted(self._free[1]):
            number = b.signatures[theirs]
            original = originals.get((number, home(b, theirs)), originals.get(number))
            if original is not None and _alike(a.opcodes[original], b.opcodes[theirs]):
                self.copies[theirs] = original
        for ours in sorted(self._free[0]):
            number = a.signatures[ours]
            original = originals.get((number, home(a, ours)), originals.get(number))
            if (
                original is not None
                and _alike(a.opcodes[original], a.opcodes[ours])
                and not a.idle[ours]  # that one was dead
            ):
                self.merged[ours] = self.mates[original][0]


# What operations that compute the same may also have in common, the most telling first.
_DESCRIPTIONS: tuple[Callable[[Side, int], Hashable], ...] = (
    lambda side, index: (side.uses[index], side.idle[index], side.shape(index)),
    lambda side, index: (side.uses[index], side.idle[index]),
    lambda side, index: (side.operations[index].name, side.idle[index]),
    lambda side, index: side.idle[index],
    lambda _side, _index: None,
)


def _alike(first: str, second: str) -> bool:
    """Return whether both compute something, or neither does: a tuple's element is not a copy."""
    return (first == "get-tuple-element") == (second == "get-tuple-element")


def _is_another(old: Instruction, new: Instruction) -> bool:
    """Return whether two instructions differ both in shape and in the framework's name.

    They are then different instructions despite equal names: most names are generated from an
    opcode and a number. The framework's name begins with that of the compiled function, which does
    not count.
    """
    names = [_COMPILED.sub("", instruction.op_name or "") for instruction in (old, new)]
    return (
        "" not in names
        and names[0] != names[1]
        and plain_shape(old.statement.shape) != plain_shape(new.statement.shape)
    )


_COMPILED = re.compile(r"^p?jit\([^()]*\)/(jit\(main\)/)?")


def _without_clones(name: str) -> str:
    """Return ``mul.12`` for ``mul.12.5.clone.1``: without the counters of clones."""
    return re.sub(r"(?<=\d)(\.\d+|\.clone)+$", "", name)


_MOST_CANDIDATES = 32
_MOST_USERS = 256  # a value with more users identifies none of them
_LIKELY = 4
