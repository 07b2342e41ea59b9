"""What a pass did to the order of the users of each value, told from the stages before and behind
it.

Only the result shows, so this is likely and not certain: that the pass went through instructions
in the order of the text, put another one, made then, in the place of each that is gone behind it or
read by nothing, and removed what nothing read any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionscope.graph.mutable import Users
from fusionscope.hlo import Computation

UserOrder = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGraph:
    """What reads what in a stage, by names in the order of the text. ``rank`` is an instruction's
    id with its place in the text, ``lines`` are all opcodes in order, with the places of what each
    reads, ``roots`` those of the computations by their names."""

    rank: dict[str, tuple[int, int]]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]
    lines: list[tuple[str, tuple[int, ...]]]
    roots: dict[str, str]
    computations: dict[str, Computation]


def infer_user_order(
    before: StageGraph, after: StageGraph, users: UserOrder, *, removes_last: bool = False
) -> dict[str, list[str]]:
    """The users that the values of ``after`` have, where those of ``before`` had ``users``.
    ``removes_last`` is whether the pass removed nothing before all that is new was there."""
    gone = {name: f"{name} before" for name in _find_replaced(before, after)}  # no name has a space
    if gone:
        names = {name: gone.get(name, name) for name in before.rank}
        before = replace(
            before,
            rank={names[name]: rank for name, rank in before.rank.items()},
            operands={
                names[name]: [names[operand] for operand in each]
                for name, each in before.operands.items()
            },
            roots={computation: names[root] for computation, root in before.roots.items()},
        )
        users = {names[name]: [names[user] for user in each] for name, each in users.items()}
    retracing = _Retracing(before, after, users, {gone[name]: name for name in gone})
    retracing.run(removes_last)
    return {name: list(retracing.users[name]) for name in after.rank}


def _find_replaced(before: StageGraph, after: StageGraph) -> set[str]:
    """Those instead of which there are others by the same names: these have come behind what had
    been made after the old ones."""
    replaced: set[str] = set()
    for computation in after.computations.values():
        names = [each.name for each in computation.instructions]
        ages = {name: before.rank[name][0] for name in names if name in before.rank}
        known = [name for name in names if ages.get(name)]  # elements of tuples have no ids
        known.sort(key=after.rank.__getitem__)
        replaced.update(known)
        replaced -= _in_order(known, ages)
    return replaced


def _in_order(names: Sequence[str], ages: Mapping[str, int]) -> set[str]:
    """As many of them as can be that go from old to young, early ones rather than late ones."""
    # Of the rows of each length, from the end on, the one that begins youngest.
    begins: list[tuple[int, str]] = []
    follows: dict[str, str | None] = {}
    for name in reversed(names):
        length = bisect_left(begins, (-ages[name], ""))
        follows[name] = begins[length - 1][1] if length else None
        begins[length : length + 1] = [(-ages[name], name)]
    kept: set[str] = set()
    current = begins[-1][1] if begins else None
    while current is not None:
        kept.add(current)
        current = follows[current]
    return kept


class _Retracing:
    def __init__(
        self,
        before: StageGraph,
        after: StageGraph,
        users: UserOrder,
        replaced: Mapping[str, str],
    ) -> None:
        self._before = before
        self._after = after
        self._replaced = replaced
        self._operands = {name: list(each) for name, each in before.operands.items()}
        self._roots = {
            root: after.roots[computation]
            for computation, root in before.roots.items()
            if computation in after.roots
        }
        self._gone: set[str] = set()
        self._removes = True
        self.users: dict[str, Users[str]] = {}
        for name in [*before.rank, *after.rank]:
            self.users[name] = Users()
        for name, order in users.items():
            for user in order:
                for _ in range(before.operands[user].count(name)):
                    self.users[name].add(user)

    def run(self, removes_last: bool) -> None:
        after = self._after
        if removes_last:
            self._make(after.rank)
            self._removes = False
        for name in self._before.rank:
            if name in after.rank:
                self._correct(name)
            if name not in self._gone:
                self._replace(name)
        self._make(after.rank)
        if removes_last:
            self._removes = True
            for name in sorted(self._before.rank, key=self._before.rank.__getitem__):
                self._remove_unused(name)

    def _correct(self, name: str) -> None:
        """Lets an instruction that stays read what it reads then."""
        ours, theirs = self._operands[name], self._after.operands[name]
        if ours == theirs:
            return
        self._make(theirs)
        is_slot_by_slot = len(ours) == len(theirs)
        self._operands[name] = list(theirs)
        for slot, old in enumerate(ours):
            if not is_slot_by_slot or old != theirs[slot]:
                self.users[old].drop(name)
        for slot, new in enumerate(theirs):
            if not is_slot_by_slot or new != ours[slot]:
                self.users[new].add(name)
        for old in ours:
            self._remove_unused(old)

    def _replace(self, old: str) -> None:
        """Puts what its readers read then in its place."""
        new = self._replacement(old)
        if new is not None and new != old:
            self._make([new])
            for user in list(self.users[old]):
                if user != new:
                    operands = self._operands[user]
                    for slot, each in enumerate(operands):
                        if each == old:
                            operands[slot] = new
                            self.users[old].drop(user)
                            self.users[new].add(user)
        self._remove_unused(old)

    def _replacement(self, old: str) -> str | None:
        """None where its readers read different ones, or are gone too."""
        if old in self._roots:
            return self._roots[old]
        if not self.users[old]:
            return self._replaced.get(old)
        found: set[str] = set()
        for user in self.users[old]:
            theirs = self._after.operands.get(user, [])
            ours = self._operands[user]
            if len(ours) == len(theirs):
                found.update(new for each, new in zip(ours, theirs, strict=True) if each == old)
        return next(iter(found)) if len(found) == 1 else None

    def _make(self, wanted: Iterable[str]) -> None:
        """Those that are not there yet and what they read, in the order of their ids."""
        missing = {name for name in wanted if name not in self._operands}
        pending = list(missing)
        while pending:
            for operand in self._after.operands[pending.pop()]:
                if operand not in self._operands and operand not in missing:
                    missing.add(operand)
                    pending.append(operand)
        for name in sorted(missing, key=self._after.rank.__getitem__):
            self._operands[name] = list(self._after.operands[name])
            for operand in self._operands[name]:
                self.users[operand].add(name)

    def _remove_unused(self, name: str) -> None:
        pending = deque([name] if self._removes else [])
        while pending:
            each = pending.popleft()
            if not self.users[each] and each not in self._after.rank and each not in self._gone:
                self._gone.add(each)
                for operand in self._operands[each]:
                    self.users[operand].drop(each)
                pending.extend(self._operands[each])
