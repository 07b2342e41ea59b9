"""The order of the users of each value before a pass, which no text tells, from all stages before.

An instruction becomes the last user of what it reads when it is made, and where a user goes the
last one takes its place (HloInstruction::Users in xla/hlo/ir/hlo_instruction.cc). Of what passes
did between two stages only the result shows, so this is likely and not certain: that they went
through instructions in the order of the text, made new ones in the order of their ids, and removed
an instruction when the last one that had read it went. What inlining calls does is replayed. The
first stage was read from a proto, which has the order of the text.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module
from fusionscope.replay.call_inliner import inline_calls
from fusionscope.replay.comparison import find_names
from fusionscope.rules.graph import MutableModule, to_module

_INLINER = "call-inliner"
_CLONE = ".clone"
_NEAR = 64  # how far in the text the original of a clone is looked for
_Users = Mapping[str, Sequence[str]]


def find_user_order(module: DumpedModule, until: Stage) -> _Users:
    """The users of the instructions of ``until`` by name, of those that have several, in their
    order; nothing where a stage cannot be read."""
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    first, *others = stages[: stages.index(until) + 1]
    try:
        earlier = _read(module, first)
        users: _Users = earlier.users
        for before, stage in pairwise([first, *others]):
            later = _read(module, stage)
            followed = _Change(earlier, later, users).follow()
            if stage.name.after == _INLINER:
                followed |= _inline(module.read(before), module.read(stage), users)
            earlier, users = later, followed
    except UnusableInput:
        return {}
    return {name: each for name, each in users.items() if len(each) > 1}


@dataclass(frozen=True, slots=True)
class _Graph:
    """A stage: what is read by and reads what, by names in the order of the text. ``rank`` is an
    instruction's id with its place in the text, ``places`` are those of all operands in order,
    ``computations`` the instructions of each, with what tells them apart but for their names."""

    rank: dict[str, tuple[int, int]]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]
    places: list[tuple[int, ...]]
    computations: dict[str, list[tuple[str, str]]]


def _read(module: DumpedModule, stage: Stage) -> _Graph:
    graph = _Graph({}, {}, {}, [], {})
    ids = module.instruction_ids(stage) or {}
    for computation in module.read(stage).reachable():
        known = ids.get(computation.name, {})
        names = [instruction.name for instruction in computation.instructions]
        kinds = [f"{each.shape} {each.opcode}" for each in computation.instructions]
        graph.computations[computation.name] = list(zip(names, kinds, strict=True))
        for name, places in zip(names, computation.graph.operands, strict=True):
            graph.rank[name] = known.get(name, 0), len(graph.rank)
            graph.operands[name] = [names[place] for place in places]
            graph.users[name] = []
            graph.places.append(tuple(places))
            for operand in dict.fromkeys(graph.operands[name]):
                graph.users[operand].append(name)
    return graph


def _inline(before: Module, after: Module, users: _Users) -> dict[str, list[str]]:
    """The users behind the inlining of calls, as far as a replay comes to what is there then."""
    graph = MutableModule(before)
    for instruction in graph.walk():
        instruction.users.reorder(users[instruction.name])
    inline_calls(graph)
    names = find_names(to_module(graph), after)
    theirs = {ours: name for name, ours in names.items()}
    return {
        theirs[each.name]: [theirs[user.name] for user in each.users]
        for each in graph.walk()
        if each.name in theirs and all(user.name in theirs for user in each.users)
    }


@dataclass(frozen=True, slots=True)
class _Change:
    """What one pass did, between two stages; ``users`` are those before it."""

    earlier: _Graph
    later: _Graph
    users: _Users

    def follow(self) -> dict[str, Sequence[str]]:
        """The users behind it."""
        earlier, later, users = self.earlier, self.later, self.users
        if earlier.places == later.places:  # other names at most
            names = dict(zip(earlier.rank, later.rank, strict=True))
            return {names[name]: [names[user] for user in each] for name, each in users.items()}
        originals = self._originals()
        return {
            name: self._changed(users[name], readers)
            if name in users
            else self._cloned(originals[name], readers, originals)
            if name in originals
            else self._taken_over(readers)
            for name, readers in later.users.items()
        }

    def _originals(self) -> dict[str, str]:
        """What is in new computations that are clones of others by their names, and what it is a
        clone of there: a pass may have left out some of it."""
        originals: dict[str, str] = {}
        for name, clones in self.later.computations.items():
            source, suffix, _ = name.rpartition(_CLONE)
            if not suffix or name in self.earlier.computations:
                continue
            rest = self.earlier.computations.get(source, [])
            place = 0
            for clone, kind in clones:
                for index in range(place, min(place + _NEAR, len(rest))):
                    if rest[index][1] == kind:
                        originals[clone] = rest[index][0]
                        place = index + 1
                        break
        return originals

    def _cloned(self, original: str, readers: list[str], originals: dict[str, str]) -> list[str]:
        """The users of a clone, in the order in which their originals read its own.

        Source: xla/hlo/ir/hlo_computation.cc, SortClonedInstructionUsersAndControlLists.
        """
        places = {user: place for place, user in enumerate(self.users[original])}
        return sorted(readers, key=lambda each: places.get(originals.get(each, ""), len(places)))

    def _changed(self, order: Sequence[str], readers: list[str]) -> Sequence[str]:
        """``order`` when its members have become ``readers``."""
        before, after = set(order), set(readers)
        if before == after:
            return order
        gone = sorted(before - after, key=self._place)
        moved = sorted(after - before & self.earlier.rank.keys(), key=self._left)
        made = sorted(after - self.earlier.rank.keys(), key=self.later.rank.__getitem__)
        changed = list(order)
        for each, replaced in self._replaced([*moved, *made], gone).items():
            changed.append(each)
            for old in replaced:
                _drop(changed, old)
                gone.remove(old)
        for old in gone:
            _drop(changed, old)
        return changed

    def _place(self, name: str) -> int:
        return self.earlier.rank[name][1]

    def _left(self, user: str) -> tuple[int, int]:
        """When an instruction that was there before left what it read: a pass goes through values
        in the order of the text, and through the users of each in theirs."""
        kept = self.later.operands[user]
        left = [value for value in self.earlier.operands[user] if value not in kept]
        if not left:
            return self._place(user), 0
        value = min(left, key=self._place)
        return self._place(value), self.users[value].index(user)

    def _replaced(self, made: list[str], gone: list[str]) -> dict[str, list[str]]:
        """Of each new user those that go right behind it: what read them has come to read it, or
        those before it. Where as many are left of both, each stands for the one in its place."""
        free = {old: set(_lasting_users(old, self.earlier, self.later)) for old in gone}
        taken: set[str] = set()
        replaced: dict[str, list[str]] = {}
        for each in made:
            taken.update(_lasting_users(each, self.later, self.earlier))
            replaced[each] = [old for old, users in free.items() if users and users <= taken]
            for old in replaced[each]:
                del free[old]
        alone = [each for each in made if not replaced[each]]
        if len(alone) == len(free):
            replaced |= {each: [old] for each, old in zip(alone, free, strict=True)}
        return replaced

    def _taken_over(self, readers: list[str]) -> list[str]:
        """The users of a new value: those made with it, and behind them those of the value that it
        stands for, in the order that they had there."""
        earlier, later = self.earlier, self.later
        made = [each for each in readers if each not in earlier.rank]
        others = [each for each in readers if each in earlier.rank]
        read = Counter(
            operand
            for each in others
            for operand in dict.fromkeys(earlier.operands[each])
            if operand not in later.operands[each]
        )
        places: dict[str, int] = {}
        if read:
            ((source, _),) = read.most_common(1)
            places = {user: place for place, user in enumerate(self.users[source])}
        made.sort(key=later.rank.__getitem__)
        others.sort(key=lambda each: (places.get(each, len(places)), later.rank[each]))
        return made + others


def _lasting_users(name: str, graph: _Graph, other: _Graph) -> Iterator[str]:
    """What reads it in ``graph``, directly or through others that ``other`` lacks, of what it
    has."""
    waiting, seen = deque(graph.users[name]), set[str]()
    while waiting:
        user = waiting.popleft()
        if user in other.rank:
            yield user
        elif user not in seen:
            seen.add(user)
            waiting.extend(graph.users[user])


def _drop(order: list[str], user: str) -> None:
    place, last = order.index(user), order.pop()
    if last != user:
        order[place] = last
