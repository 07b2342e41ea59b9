"""Infers the effect of a pass on the order of users, from the stages before and after it.

Only the result shows, so this is likely, but not certain. It assumes that the pass visited
instructions in the order of the text, replaced each one that is dead or missing afterwards by a new
one, and removed dead instructions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from fusionscope.graph.mutable import Users
from fusionscope.hlo import Computation, Module
from fusionscope.hlo.model import Body

UserOrder = Mapping[str, Sequence[str]]


class BodyGraph(NamedTuple):
    """The edges of one computation. The fields are as in ``StageGraph``."""

    names: list[str]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]
    lines: list[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGraph:
    """The edges of a stage, by names in the order of the text. ``rank`` holds an instruction's id
    and its place in the text. ``lines`` are all opcodes in order, with the places of their
    operands. ``roots`` are those of the computations, by name. ``ids`` are those of the dump,
    None if it has none; ``bodies`` are the parts, which stages share.
    """

    rank: dict[str, tuple[int, int]]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]
    lines: list[tuple[str, tuple[int, ...]]]
    roots: dict[str, str]
    computations: dict[str, Computation]
    module: Module
    bodies: dict[Body, BodyGraph]
    ids: Mapping[str, Mapping[str, int]] | None


def infer_user_order(
    before: StageGraph, after: StageGraph, users: UserOrder, *, removes_last: bool = False
) -> dict[str, Sequence[str]]:
    """Return the users of the values of ``after``, if those of ``before`` had ``users``.
    ``removes_last`` is whether the pass removed nothing before all new instructions existed.
    """
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
    return {name: retracing.order(name) for name in after.rank}


def _find_replaced(before: StageGraph, after: StageGraph) -> set[str]:
    """Return the names that now belong to other instructions: these follow instructions that were
    created after the old ones.
    """
    replaced: set[str] = set()
    for computation in after.computations.values():
        names = [each.name for each in computation.graph.statements]
        ages = {name: before.rank[name][0] for name in names if name in before.rank}
        known = [name for name in names if ages.get(name)]  # elements of tuples have no ids
        known.sort(key=after.rank.__getitem__)
        if any(ages[one] >= ages[other] for one, other in pairwise(known)):
            replaced.update(known)
            replaced -= _in_order(known, ages)
    return replaced


def _in_order(names: Sequence[str], ages: Mapping[str, int]) -> set[str]:
    """Return the longest subsequence that goes from old to young, preferring early names."""
    # For each length, the sequence to the end that begins with the youngest.
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
        self._operands = dict(before.operands)
        self._roots = {
            root: after.roots[computation]
            for computation, root in before.roots.items()
            if computation in after.roots
        }
        self._gone: set[str] = set()
        self._removes = True
        self._users_before = users
        self._users: dict[str, Users[str]] = {}  # copied from there when they are first needed
        # Instructions that have other operands than later, and the operands that they have or had.
        # Only these, gone ones and roots can have been replaced.
        self._differing = {
            name for name, each in before.operands.items() if each != after.operands.get(name)
        }
        self._read_differently = {
            operand for name in self._differing for operand in before.operands[name]
        }

    def order(self, name: str) -> Sequence[str]:
        """Return the users of a value in their order."""
        users = self._users.get(name)
        return self._users_before.get(name, ()) if users is None else list(users)

    def _users_of(self, name: str) -> Users[str]:
        users = self._users.get(name)
        if users is None:
            users = self._users[name] = Users()
            for user in self._users_before.get(name, ()):
                for _ in range(self._before.operands[user].count(name)):
                    users.add(user)
        return users

    def run(self, removes_last: bool) -> None:
        after = self._after
        if removes_last:
            self._make(after.rank)
            self._removes = False
        for name in self._before.rank:
            is_there = name in after.rank
            if is_there and name in self._differing:
                self._correct(name)
            if name not in self._gone and (
                not is_there or name in self._read_differently or name in self._roots
            ):
                self._replace(name)
        self._make(after.rank)
        if removes_last:
            self._removes = True
            for name in sorted(self._before.rank, key=self._before.rank.__getitem__):
                self._remove_unused(name)

    def _correct(self, name: str) -> None:
        """Give an instruction that stays its later operands."""
        ours, theirs = self._operands[name], self._after.operands[name]
        if ours == theirs:
            return
        self._make(theirs)
        is_slot_by_slot = len(ours) == len(theirs)
        self._operands[name] = list(theirs)
        for slot, old in enumerate(ours):
            if not is_slot_by_slot or old != theirs[slot]:
                self._users_of(old).drop(name)
        for slot, new in enumerate(theirs):
            if not is_slot_by_slot or new != ours[slot]:
                self._users_of(new).add(name)
        for old in ours:
            self._remove_unused(old)

    def _replace(self, old: str) -> None:
        """Replace an instruction by the operand that its users read later."""
        new = self._replacement(old)
        if new is not None and new != old:
            self._make([new])
            for user in list(self._users_of(old)):
                if user != new:
                    operands = self._operands[user] = list(self._operands[user])
                    for slot, each in enumerate(operands):
                        if each == old:
                            operands[slot] = new
                            self._users_of(old).drop(user)
                            self._users_of(new).add(user)
                    self._differing.add(user)
                    self._read_differently.update(operands)
        self._remove_unused(old)

    def _replacement(self, old: str) -> str | None:
        """Return None if its users read different ones later, or are gone too."""
        if old in self._roots:
            return self._roots[old]
        if not self._users_of(old):
            return self._replaced.get(old)
        found: set[str] = set()
        for user in self._users_of(old):
            theirs = self._after.operands.get(user, [])
            ours = self._operands[user]
            if len(ours) == len(theirs):
                found.update(new for each, new in zip(ours, theirs, strict=True) if each == old)
        return next(iter(found)) if len(found) == 1 else None

    def _make(self, wanted: Iterable[str]) -> None:
        """Create the ones that do not exist yet, and their operands, in the order of their ids."""
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
                self._users_of(operand).add(name)

    def _remove_unused(self, name: str) -> None:
        pending = deque([name] if self._removes else [])
        while pending:
            each = pending.popleft()
            if each in self._after.rank or each in self._gone or self._users_of(each):
                continue
            self._gone.add(each)
            for operand in self._operands[each]:
                self._users_of(operand).drop(each)
            pending.extend(self._operands[each])
