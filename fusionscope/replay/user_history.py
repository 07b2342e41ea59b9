"""The order of the users of each value before a pass, which no text tells, from all stages before.

An instruction becomes the last user of what it reads when it is made, and where a user goes the
last one takes its place (HloInstruction::Users in xla/hlo/ir/hlo_instruction.cc). Of what passes
did between two stages only the result shows, so this is likely and not certain: that instructions
were made in the order of their ids, each before the one went that it stands for. The first stage
was read from a proto, which has the order of the text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput


def find_user_order(module: DumpedModule, until: Stage) -> dict[str, list[str]]:
    """The users of the instructions of ``until`` by name, of those that have several, in their
    order; nothing where a stage cannot be read."""
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    users: dict[str, list[str]] = {}
    earlier: _Graph | None = None
    try:
        for stage in stages[: stages.index(until) + 1]:
            later = _read(module, stage)
            users = later.users if earlier is None else _follow(users, earlier, later)
            earlier = later
    except UnusableInput:
        return {}
    return {name: each for name, each in users.items() if len(each) > 1}


@dataclass(frozen=True, slots=True)
class _Graph:
    """A stage: what is read by and reads what, by names in the order of the text. ``rank`` is an
    instruction's id with its place in the text, ``places`` are those of all operands in order."""

    rank: dict[str, tuple[int, int]]
    operands: dict[str, list[str]]
    users: dict[str, list[str]]
    places: list[tuple[int, ...]]


def _read(module: DumpedModule, stage: Stage) -> _Graph:
    graph = _Graph({}, {}, {}, [])
    ids = module.instruction_ids(stage) or {}
    for computation in module.read(stage).reachable():
        known = ids.get(computation.name, {})
        names = [instruction.name for instruction in computation.instructions]
        for name, places in zip(names, computation.graph.operands, strict=True):
            graph.rank[name] = known.get(name, 0), len(graph.rank)
            graph.operands[name] = [names[place] for place in places]
            graph.users[name] = []
            graph.places.append(tuple(places))
            for operand in dict.fromkeys(graph.operands[name]):
                graph.users[operand].append(name)
    return graph


def _follow(users: dict[str, list[str]], earlier: _Graph, later: _Graph) -> dict[str, list[str]]:
    if earlier.places == later.places:  # other names at most
        names = dict(zip(earlier.rank, later.rank, strict=True))
        return {names[name]: [names[user] for user in each] for name, each in users.items()}
    return {
        name: _changed(users[name], readers, earlier, later)
        if name in users
        else _taken_over(readers, users, earlier, later)
        for name, readers in later.users.items()
    }


def _changed(order: list[str], readers: list[str], earlier: _Graph, later: _Graph) -> list[str]:
    """``order`` when its members have become ``readers``."""
    before, after = set(order), set(readers)
    if before == after:
        return order
    gone = sorted(before - after, key=earlier.rank.__getitem__)
    order = list(order)
    made = sorted(after - before, key=later.rank.__getitem__)
    replaced = _pair(made, gone, earlier, later)
    for each in made:
        order.append(each)
        if each in replaced:
            _drop(order, replaced[each])
    for each in gone:
        if each not in replaced.values():
            _drop(order, each)
    return order


def _pair(made: list[str], gone: list[str], earlier: _Graph, later: _Graph) -> dict[str, str]:
    """Which instruction each new one stands for: one that the same instruction read, or, where as
    many are left of both, the one in its place."""
    by_user = {user: each for each in reversed(gone) for user in earlier.users[each]}
    pairs: dict[str, str] = {}
    free = dict.fromkeys(gone)
    for each in made:
        found = (by_user.get(user) for user in later.users[each])
        match = next((old for old in found if old in free), None)
        if match is not None:
            pairs[each] = match
            del free[match]
    alone = [each for each in made if each not in pairs]
    if len(alone) == len(free):
        pairs.update(zip(alone, free, strict=True))
    return pairs


def _drop(order: list[str], user: str) -> None:
    place, last = order.index(user), order.pop()
    if last != user:
        order[place] = last


def _taken_over(
    readers: list[str], users: dict[str, list[str]], earlier: _Graph, later: _Graph
) -> list[str]:
    """The users of a new value: those made with it, and behind them those of the value that it
    stands for, in the order that they had there."""
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
        places = {user: place for place, user in enumerate(users[source])}
    made.sort(key=later.rank.__getitem__)
    others.sort(key=lambda each: (places.get(each, len(places)), later.rank[each]))
    return made + others
