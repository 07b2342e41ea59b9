"""Pairs the fusions of two regions: fusions with the same results are the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

from fusionscope.history.operations import flatten
from fusionscope.history.pairing import Side, groups
from fusionscope.hlo import Computation, Instruction

_MOST_HOLDERS = 32  # if more fusions hold it, it identifies none of them


class _Held:
    """The operations and results of one computation of a region, mostly that of a fusion."""

    __slots__ = ("caller", "is_idle", "members", "outputs", "results", "uses")

    def __init__(self, caller: Instruction) -> None:
        self.caller = caller
        self.members: set[int] = set()
        self.outputs: frozenset[int] = frozenset()  # the values that its roots compute
        self.results: frozenset[int] = frozenset()  # the same without copies
        self.uses: frozenset[int] = frozenset()
        self.is_idle = False


def _held(side: Side) -> dict[Computation, _Held]:
    found = {computation: _Held(caller) for computation, caller in side.region.callers.items()}
    for index, operation in enumerate(side.operations):
        held = found.get(operation.computation)
        if held is not None:
            held.members.add(side.signatures[index])
    for computation, held in found.items():
        outputs = tuple(flatten(side.region.carried[computation.root]))
        held.outputs = frozenset(side.signatures[output] for output in outputs)
        held.results = frozenset(side.values[output] for output in outputs)
        held.uses = frozenset(side.uses[output] for output in outputs)
        held.is_idle = all(side.idle[output] for output in outputs)
    return found


def pair_fusions(a: Side, b: Side) -> dict[Computation, Computation]:
    """Return the pairs of computations of fusions (and of single calls)."""
    everything = _held(a), _held(b)
    found: dict[Computation, Computation] = {}
    for is_idle in (False, True):  # live ones first
        left = [{c: h for c, h in side.items() if h.is_idle is is_idle} for side in everything]
        found |= _pair_held(left)
    paired = set(found.values())
    left = [
        {c: h for c, h in everything[0].items() if c not in found},
        {c: h for c, h in everything[1].items() if c not in paired},
    ]
    return found | _pair_held(left)


def _pair_held(left: list[dict[Computation, _Held]]) -> dict[Computation, Computation]:
    found: dict[Computation, Computation] = {}

    def add(one: Computation, other: Computation) -> None:
        found[one] = other
        del left[0][one], left[1][other]

    def pair(describe: Callable[[_Held], Hashable]) -> None:
        known = left[0] | left[1]
        for ours, theirs in list(groups(left[0], left[1], lambda c: describe(known[c]))):
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
        for number in held.members | held.results:
            holders[number].append(computation)
    candidates: list[tuple[float, int, Computation, Computation]] = []
    for one, held in left[0].items():
        near: dict[Computation, None] = {}
        for number in held.members | held.results:
            if len(holders[number]) <= _MOST_HOLDERS:
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
    """Return how much two fusions have in common: more if they share a result, and most if they
    share the name too; 0 if they share neither a result nor half of the smaller one.
    """
    common = len(one.members & other.members)
    same_result = bool(one.results & other.results)
    same_name = one.caller.name == other.caller.name
    if not same_result and 2 * common < min(len(one.members), len(other.members)):
        return 0
    score = common / max(len(one.members | other.members), 1)
    return score + 0.75 * same_result + (1 if same_result else 0.25) * same_name
