"""Infers the effect of a pass on the order of users, from the stages before and after it.

Only the result shows, so this is likely, but not certain. It assumes that the pass visited
instructions in the order of the text, replaced each one that is dead or missing afterwards by a new
one, and removed dead instructions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import NamedTuple

from fusionscope.graph.mutable import Users
from fusionscope.hlo import Computation, Module
from fusionscope.hlo.model import Body, Statement
from fusionscope.hlo.search import reachable
from fusionscope.hlo.views import RESHAPES
from fusionscope.user_order.renaming import find_renamed

UserOrder = Mapping[str, Sequence[str]]


class BodyGraph(NamedTuple):
    """The edges of one computation. The fields are as in ``StageGraph``; ``statements`` are those
    of its instructions.
    """

    statements: tuple[Statement, ...]
    names: list[str]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGraph:
    """The edges of a stage, by names in the order of the text, ``users`` too. ``ages`` are the ids
    of instructions. ``roots`` are those of the computations, by name. ``ids`` are those of the
    dump, None if it has none; ``bodies`` are the parts, which stages share.
    """

    ages: dict[str, int]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]
    roots: dict[str, str]
    computations: dict[str, Computation]
    module: Module
    bodies: dict[Body, BodyGraph]
    ids: Mapping[str, Mapping[str, int]] | None

    def oldest_first(self, names: Collection[str]) -> list[str]:
        """Return names by their ids, and those without one in the order of the text."""
        ages = self.ages
        if len({ages[name] for name in names}) == len(names):
            return sorted(names, key=ages.__getitem__)
        places = {name: place for place, name in enumerate(ages)}
        return sorted(names, key=lambda name: (ages[name], places[name]))

    def unshared(self, second: StageGraph) -> list[Computation]:
        """Return the computations that differ from those of ``second``."""
        return [
            computation
            for computation in self.computations.values()
            if computation.body not in second.bodies
        ]


def infer_user_order(
    before: StageGraph, after: StageGraph, users: UserOrder, *, removes_last: bool = False
) -> dict[str, Sequence[str]]:
    """Return the users of values of ``after``, if those of ``before`` had ``users``. Values that
    are missing in either have the order of the text.

    ``removes_last`` is whether the pass removed nothing before all new instructions existed.
    """
    renamed = find_renamed(before, after)
    replaced_names = _find_replaced(before, after, renamed)
    gone = {name: f"{name} before" for name in replaced_names}  # no name has a space
    gone |= {name: f"{name} before" for name in renamed if name in before.ages}
    gone |= {old: name for name, old in renamed.items()}
    orders = {name: order for name, order in users.items() if name not in gone}
    unshared = after.unshared(before)
    reshaped = {
        gone.get(name, name): new for name, new in _find_reshaped_reductions(before, after).items()
    }
    if gone:
        names = {name: gone.get(name, name) for name in before.ages}
        users = {names[name]: [names[user] for user in order] for name, order in users.items()}
        before = replace(
            before,
            ages={names[name]: age for name, age in before.ages.items()},
            operands=_renamed(before.operands, names),
            users=_renamed(before.users, names),
            roots={computation: names[root] for computation, root in before.roots.items()},
            bodies={},
        )
    replaced = {gone[name]: name for name in gone if gone[name] not in renamed}
    retracing = _Retracing(before, after, users, replaced, reshaped)
    retracing.run(removes_last)
    for computation in unshared:
        for name, users_after in after.bodies[computation.body].users.items():
            if len(users_after) > 1 and users_after is not before.users.get(
                name
            ):  # the stages share what is equal
                orders[name] = retracing.order(name)
    orders.update((name, retracing.order(name)) for name in retracing.changed)
    return orders


def _renamed(edges: Mapping[str, list[str]], names: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        names[name]: [names[operand] for operand in operands] for name, operands in edges.items()
    }


def _find_reshaped_reductions(before: StageGraph, after: StageGraph) -> dict[str, str]:
    """Return reductions that are gone together with the reshape that was their only user, with the
    new reductions that the users of the reshape read instead.

    The simplifier replaces a reduction that keeps dimensions of one element by a new one with a
    reshape behind it. Reshapes of this reshape become no-ops. The new reduction takes over their
    users before they are removed, so the last user takes their place. Source:
    xla/hlo/transforms/simplifiers/algebraic_simplifier.cc, HandleReduce and HandleReshape.
    """
    new = {
        statement.name
        for computation in after.unshared(before)
        for statement in after.bodies[computation.body].statements
        if statement.opcode == "reduce" and statement.name not in before.ages
    }
    reshaped: dict[str, str] = {}
    for computation in before.unshared(after) if new else ():
        body = before.bodies[computation.body]
        opcodes = {statement.name: statement.opcode for statement in body.statements}
        for name, opcode in opcodes.items():
            if opcode != "reduce" or name in after.ages or len(body.users[name]) != 1:
                continue
            (user,) = body.users[name]
            if opcodes[user] not in RESHAPES or user in after.ages:
                continue
            read = {
                read_name
                for reader in body.users[user]
                for read_name in after.operands.get(reader, ())
            }
            if len(read & new) == 1:
                (reshaped[name],) = read & new
    return reshaped


def _find_replaced(before: StageGraph, after: StageGraph, renamed: Container[str]) -> set[str]:
    """Return the names that now belong to other instructions: these are younger than one that is
    new and not ``renamed``, or follow instructions that were created after the old ones.
    """
    replaced: set[str] = set()
    renewed = {name for name, age in after.ages.items() if before.ages.get(name, age) != age}
    for computation in after.computations.values() if renewed else ():
        names = after.bodies[computation.body].names
        if renewed.isdisjoint(names):
            continue
        ages = {name: before.ages[name] for name in names if name in before.ages}
        aged = [name for name in names if after.ages[name]]  # elements of tuples have no ids
        old: list[str] = []
        is_younger = False
        for name in after.oldest_first(aged):
            is_younger |= name not in ages and name not in renamed
            if ages.get(name):
                (replaced.add if is_younger else old.append)(name)
        if any(ages[first] >= ages[second] for first, second in pairwise(old)):
            replaced.update(old)
            replaced -= _in_order(old, ages)
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
    reached: set[str] = set()
    current = begins[-1][1] if begins else None
    while current is not None:
        reached.add(current)
        current = follows[current]
    return reached


def _operands_without(
    graph: StageGraph, bodies: Container[Body]
) -> Iterable[tuple[str, list[str]]]:
    """Return the operands of all instructions but those in ``bodies``, by their names."""
    if not graph.bodies:
        return graph.operands.items()
    edges = (
        body.operands.items() for body_of, body in graph.bodies.items() if body_of not in bodies
    )
    return chain.from_iterable(edges)


class _Retracing:
    def __init__(
        self,
        before: StageGraph,
        after: StageGraph,
        users: UserOrder,
        replaced: Mapping[str, str],
        reshaped: Mapping[str, str],
    ) -> None:
        self._before = before
        self._after = after
        self._replaced = replaced
        self._reshaped = reshaped
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
            name
            for name, operands in _operands_without(before, after.bodies)
            if operands != after.operands.get(name)
        }
        self._read_differently = {
            operand for name in self._differing for operand in before.operands[name]
        }

    @property
    def changed(self) -> Iterable[str]:
        """The values whose users may have changed, at least."""
        return self._users

    def order(self, name: str) -> Sequence[str]:
        """Return the users of a value in their order."""
        users = self._users.get(name)
        return self._order_before(name) if users is None else list(users)

    def _order_before(self, name: str) -> Sequence[str]:
        order = self._users_before.get(name)
        return self._before.users.get(name, ()) if order is None else order

    def _users_of(self, name: str) -> Users[str]:
        users = self._users.get(name)
        if users is None:
            users = self._users[name] = Users()
            for user in self._order_before(name):
                for _ in range(self._before.operands[user].count(name)):
                    users.add(user)
        return users

    def run(self, removes_last: bool) -> None:
        after = self._after
        if removes_last:
            self._make(after.ages)
            self._removes = False
        for name in self._before.ages:
            is_there = name in after.ages
            if is_there and name in self._differing:
                self._correct(name)
            if name not in self._gone and (
                not is_there or name in self._read_differently or name in self._roots
            ):
                self._replace(name)
        self._make(after.ages)
        if removes_last:
            self._removes = True
            for name in self._before.oldest_first(self._before.ages):
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
                    for slot, operand in enumerate(operands):
                        if operand == old:
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
        if old in self._reshaped:
            return self._reshaped[old]
        candidates: set[str] = set()
        for user in self._users_of(old):
            theirs = self._after.operands.get(user, [])
            ours = self._operands[user]
            if len(ours) == len(theirs):
                candidates.update(
                    new for old_operand, new in zip(ours, theirs, strict=True) if old_operand == old
                )
        return next(iter(candidates)) if len(candidates) == 1 else None

    def _make(self, wanted: Iterable[str]) -> None:
        """Create the ones that do not exist yet, and their operands, in the order of their ids."""

        def absent(names: Iterable[str]) -> list[str]:
            return [name for name in names if name not in self._operands]

        missing = {*reachable(absent(wanted), lambda name: absent(self._after.operands[name]))}
        for name in self._after.oldest_first(missing):
            self._operands[name] = list(self._after.operands[name])
            for operand in self._operands[name]:
                self._users_of(operand).add(name)

    def _remove_unused(self, name: str) -> None:
        pending = deque([name] if self._removes else [])
        while pending:
            unused = pending.popleft()
            if unused in self._after.ages or unused in self._gone or self._users_of(unused):
                continue
            self._gone.add(unused)
            for operand in self._operands[unused]:
                self._users_of(operand).drop(unused)
            pending.extend(self._operands[unused])
