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
    held_by_fusion = {
        computation: _Held(caller) for computation, caller in side.region.callers.items()
    }
    for index, operation in enumerate(side.operations):
        contents = held_by_fusion.get(operation.computation)
        if contents is not None:
            contents.members.add(side.signatures[index])
    for computation, contents in held_by_fusion.items():
        outputs = tuple(flatten(side.region.carried[computation.root]))
        contents.outputs = frozenset(side.signatures[output] for output in outputs)
        contents.results = frozenset(side.values[output] for output in outputs)
        contents.uses = frozenset(side.uses[output] for output in outputs)
        contents.is_idle = all(side.idle[output] for output in outputs)
    return held_by_fusion


def pair_fusions(a: Side, b: Side) -> dict[Computation, Computation]:
    """Return the pairs of computations of fusions (and of single calls)."""
    everything = _held(a), _held(b)
    fusion_pairs_found: dict[Computation, Computation] = {}
    for is_idle in (False, True):  # live ones first
        left = [{c: h for c, h in side.items() if h.is_idle is is_idle} for side in everything]
        fusion_pairs_found |= _pair_held(left)
    paired = set(fusion_pairs_found.values())
    left = [
        {c: h for c, h in everything[0].items() if c not in fusion_pairs_found},
        {c: h for c, h in everything[1].items() if c not in paired},
    ]
    return fusion_pairs_found | _pair_held(left)


def _pair_held(left: list[dict[Computation, _Held]]) -> dict[Computation, Computation]:
    paired: dict[Computation, Computation] = {}

    def add(ours_one: Computation, theirs_one: Computation) -> None:
        paired[ours_one] = theirs_one
        del left[0][ours_one], left[1][theirs_one]

    def pair(describe: Callable[[_Held], Hashable]) -> None:
        contents_of = left[0] | left[1]
        for ours, theirs in list(groups(left[0], left[1], lambda c: describe(contents_of[c]))):
            for ours_one, theirs_one in zip(ours, theirs, strict=False):
                add(ours_one, theirs_one)

    def content(contents: _Held) -> Hashable:
        return contents.caller.opcode, contents.outputs, frozenset(contents.members)

    pair(lambda contents: (content(contents), contents.uses, contents.caller.name))
    pair(lambda contents: (content(contents), contents.uses))
    pair(lambda contents: (content(contents), contents.caller.name))
    pair(lambda contents: (contents.caller.opcode, contents.outputs, contents.caller.name))
    pair(lambda contents: (contents.caller.opcode, contents.outputs))
    holders: dict[int, list[Computation]] = defaultdict(list)
    for computation, contents in left[1].items():
        for number in contents.members | contents.results:
            holders[number].append(computation)
    candidates: list[tuple[float, int, Computation, Computation]] = []
    for ours_one, contents in left[0].items():
        near: dict[Computation, None] = {}
        for number in contents.members | contents.results:
            if len(holders[number]) <= _MOST_HOLDERS:
                near.update(dict.fromkeys(holders[number]))
        for theirs_one in near:
            score = _overlap(contents, left[1][theirs_one])
            if score:
                candidates.append((-score, len(candidates), ours_one, theirs_one))
    for _, _, ours_one, theirs_one in sorted(candidates, key=lambda candidate: candidate[:2]):
        if ours_one in left[0] and theirs_one in left[1]:
            add(ours_one, theirs_one)
    return paired


def _overlap(first: _Held, second: _Held) -> float:
    """Return how much two fusions have in common: more if they share a result, and most if they
    share the name too; 0 if they share neither a result nor half of the smaller one.
    """
    common = len(first.members & second.members)
    same_result = bool(first.results & second.results)
    same_name = first.caller.name == second.caller.name
    if not same_result and 2 * common < min(len(first.members), len(second.members)):
        return 0
    score = common / max(len(first.members | second.members), 1)
    return score + 0.75 * same_result + (1 if same_result else 0.25) * same_name
