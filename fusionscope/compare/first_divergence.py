"""The point where two compilations of one program diverge: the pass, the decision, and the passes
that made each fusion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.findings.recomputed.materialized import needed_for
from fusionscope.history.changes import CARRIERS, ChangeKind, FusionChange, same_but_for_notes
from fusionscope.history.lineage import Lineage
from fusionscope.history.matching import Matching, match
from fusionscope.history.operations import Value
from fusionscope.history.pairing import CERTAIN, MatchKind
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.literals import is_elided
from fusionscope.progress import Progress, counted
from fusionscope.reasons.recorded_decisions import ProducerDecision, read_recorded_decisions


class FirstDivergence(
    Facts, frozen=True, rename={"stage_before": "before", "stage_after": "after"}
):
    """The place from which on two compilations differ.

    One of them is None if only the other side has a stage there: its pass did not run on this side,
    or changed nothing.

    last_same: label of the last stage, looking back from the end, in which both are the same; null
        if they never are
    stage_before: label of the first stage that differs; null if only the other side has such a
        stage
    stage_after: label of the first stage that differs; null if only the other side has such a stage
    is_exact: false if a dump was made with a filter, so that a pass in between may have left no
        stage
    """

    last_same: str | None
    stage_before: str | None
    stage_after: str | None
    is_exact: bool


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """The first recorded decision with a different result.

    ``subject_before`` and ``subject_after`` name the producer, and the consumer if the pass decides
    on each. ``is_first`` is false if an earlier fusion, in either record, involves operations that
    may not be the same in both: an earlier decision may differ as well.
    """

    subject_before: tuple[str, ...]
    subject_after: tuple[str, ...]
    before: ProducerDecision
    after: ProducerDecision
    is_first: bool = True

    @property
    def is_near_tie(self) -> bool | None:
        """Return whether one side expected to gain or lose less than 5%; None without estimates."""
        sides = (self.before.estimate, self.after.estimate)
        ties = [estimate.is_near_tie for estimate in sides if estimate is not None]
        return any(ties) if ties else None


def find_first_divergence(lineages: tuple[Lineage, Lineage], progress: Progress) -> FirstDivergence:
    """Search backwards from the end for the last stage in which both are the same.

    Stages are aligned by pipeline and pass. A stage that only one side has between that stage and
    the next aligned ones is the divergence, if it made a relevant change.

    Raises ``UnusableInput`` if a stage that has to be compared contradicts itself.
    """
    sides = [_changing(lineage) for lineage in lineages]
    keys = [
        [(stage.name.pipeline, stage.name.after or stage.label) for stage, _ in side]
        for side in sides
    ]
    for keys_of_side in keys:
        keys_of_side[-1] = ("", "final")  # its name contains the device
    blocks = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks()
    beside = [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]
    following: tuple[int, int] | None = None
    rows = beside[::-1]
    try:
        is_exact = all(lineage.dumped.shows_all_passes for lineage in lineages)
    except UnusableInput:  # reported where the flags matter
        is_exact = False
    for i, j in counted(rows, "comparing stage", progress):
        if not _is_same(sides[0][i][1], sides[1][j][1]):
            following = i, j
            continue
        if following is None:
            return FirstDivergence(sides[0][i][0].label, None, None, is_exact)
        alone = sides[0][i : following[0]], sides[1][j : following[1]]
        i, j = _last_same(*alone)
        first = [
            keys_of_side[index + 1][0] if index + 1 < len(keys_of_side) else None
            for keys_of_side, index in zip(alone, (i, j), strict=True)
        ]
        if first == [None, None]:
            first = [side[index][0] for side, index in zip(sides, following, strict=True)]
        first = _without_consequences(first, lineages)
        labels = [None if stage is None else stage.label for stage in first]
        return FirstDivergence(alone[0][i][0].label, labels[0], labels[1], is_exact)
    return FirstDivergence(None, sides[0][0][0].label, sides[1][0][0].label, is_exact)


def _without_consequences(
    stages: list[Stage | None], lineages: tuple[Lineage, Lineage]
) -> list[Stage | None]:
    """Of two stages that only one side each has, return the one whose pass the other side's flags
    disable, if it is just one: the other side's stage follows from it.
    """
    stage_before, stage_after = stages
    if stage_before is None or stage_after is None:
        return stages
    try:
        ran = [
            lineage.dumped.lets_run(stage.name.after)
            for lineage, stage in zip(lineages, (stage_after, stage_before), strict=True)
        ]
    except UnusableInput:  # reported where the flags matter
        return stages
    if ran[0] == ran[1]:
        return stages
    return [stage_before, None] if ran[0] else [None, stage_after]


def _last_same(
    ours: list[tuple[Stage, Module]], theirs: list[tuple[Stage, Module]]
) -> tuple[int, int]:
    """Return how far two sequences of stages stay the same."""
    i = j = 0
    while True:
        for step in ((1, 1), (1, 0), (0, 1)):
            p, q = i + step[0], j + step[1]
            if p < len(ours) and q < len(theirs) and _is_same(ours[p][1], theirs[q][1]):
                i, j = p, q
                break
        else:
            return i, j


def _changing(lineage: Lineage) -> list[tuple[Stage, Module]]:
    """Return the stages after changes, and the last one."""
    changing: list[tuple[Stage, Module]] = []
    last = lineage.stages[-1]
    for stage, module in zip(lineage.stages, lineage.modules, strict=True):
        is_changed = not changing or any(
            getattr(changing[-1][1], what) != getattr(module, what)
            for what in ("bodies", "is_scheduled")
        )
        if stage is last and not is_changed and len(changing) > 1:
            changing.pop()
        if stage is last or is_changed:
            changing.append((stage, module))
    return changing


def _is_same(first: Module, second: Module) -> bool:
    """Return whether two stages are the same apart from names, metadata and notes for later passes.

    The order of the text counts if both are scheduled: it is the scheduler's decision.
    """
    if first is second:
        return True
    contents = [[(body.name, body.written) for body in module.bodies] for module in (first, second)]
    if contents[0] == contents[1]:
        return True
    counts = [
        Counter(
            statement.opcode
            for computation in module.reachable()
            for statement in computation.body.written
            if statement.opcode not in CARRIERS
        )
        for module in (first, second)
    ]
    if counts[0] != counts[1]:
        return False
    fusions = [
        sum(statement.opcode == "fusion" for body in module.bodies for statement in body.written)
        for module in (first, second)
    ]
    more = first if fusions[0] > fusions[1] else second
    if fusions[0] != fusions[1] and _count_read_fusions(more) > min(fusions):
        return False  # one of them has no counterpart
    matching = match(first, second)
    return same_but_for_notes(matching) and (
        not (first.is_scheduled and second.is_scheduled) or _is_same_order(matching)
    )


def _count_read_fusions(module: Module) -> int:
    """Return how many fused computations, at least, a result of their caller depends on."""
    fused_computations: set[Computation] = set()
    for computation in module.reachable():
        if computation in module.outermost_fusions:
            continue
        elements = [  # of a tuple, each reads only one operand: that one is not searched
            instruction
            for instruction in computation.instructions
            if instruction.opcode == "get-tuple-element"
            and instruction.operands[0].opcode == "tuple"
        ]
        for source in needed_for([computation.root], elements):
            if source.opcode == "fusion":
                fused_computations.update(source.called[:1])
    return len(fused_computations)


def _is_same_order(matching: Matching) -> bool:
    """Return whether the operations of both modules are in the same order."""
    for before_computation, after_computation in matching.computations.items():
        places = [
            after.index
            for before in before_computation.instructions
            if before.opcode not in _ANYWHERE
            and (after := matching.after.get(before)) is not None
            and after.computation is after_computation
        ]
        if places != sorted(places):
            return False
    return True


# The order of these does not matter.
_ANYWHERE = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})


_FORMING = frozenset(
    {ChangeKind.FORMED, ChangeKind.GROWN, ChangeKind.MERGED, ChangeKind.DUPLICATED,
     ChangeKind.MULTI_OUTPUT, ChangeKind.LIBRARY, ChangeKind.WRAPPED, ChangeKind.SPLIT}
)  # fmt: skip


Makers: TypeAlias = dict[tuple[str, str], tuple[str, ...]]


def find_makers(
    lineages: tuple[Lineage, Lineage],
    names: tuple[Container[tuple[str, str]], Container[tuple[str, str]]],
    progress: Progress,
) -> tuple[Makers, Makers]:
    """Return, for both sides, the passes that made fusions and library calls of the last stage what
    they are, in order. ``names`` are those of the computation and the instruction, as in the
    result.

    Goes back from the last stage, and compares stages only if they differ in one of these. Those
    that both sides have at the beginning are compared once.

    Raises ``UnusableInput`` if a stage that has to be compared contradicts itself.
    """
    before, after = (_Traced(*side_input) for side_input in zip(lineages, names, strict=True))
    shared = _count_shared(lineages)
    last = [lineage.modules[-1] for lineage in lineages]

    def release(module: Module) -> None:
        if all(module is not side_input for side_input in last):
            module.release()

    for side, lineage in zip((before, after), lineages, strict=True):
        indices = range(len(lineage.stages) - 2, max(shared, 1) - 2, -1)
        for index in counted(indices, "comparing stage", progress):
            if not side.later:
                break
            side.go_back(lineage, index)
            release(lineage.modules[index + 1])
    for index in counted(range(shared - 2, -1, -1), "comparing stage", progress):
        if not (before.later or after.later):
            break
        for side in (before, after):
            side.go_back(lineages[0], index)
        release(lineages[0].modules[index + 1])
    return before.makers(), after.makers()


def _count_shared(lineages: tuple[Lineage, Lineage]) -> int:
    """Return how many stages at the beginning are the same modules after the same passes."""
    our_steps, their_steps = (
        zip(lineage.modules, (stage.name.after for stage in lineage.stages), strict=True)
        for lineage in lineages
    )
    count = 0
    for (ours, our_pass), (theirs, their_pass) in zip(our_steps, their_steps, strict=False):
        if ours is not theirs or our_pass != their_pass:
            break
        count += 1
    return count


class _Traced:
    """The fusions and library calls of one side with these names, followed back through stages.

    ``later`` are what they were in the stage that was reached.
    """

    def __init__(self, lineage: Lineage, names: Container[tuple[str, str]]) -> None:
        self._found = {
            instruction: name
            for computation in lineage.modules[-1].computations
            for instruction in computation.instructions
            if instruction.opcode in _LAUNCHED
            and (name := (computation.name, instruction.name)) in names
        }
        self._origins: list[dict[Instruction, _Origin]] = []
        self.later: Collection[Instruction] = self._found

    def go_back(self, lineage: Lineage, index: int) -> None:
        """Go from stage ``index + 1`` to the one before."""
        origins = _origins(lineage, index, self.later)
        self._origins.append(origins)
        self.later = {part: None for origin in origins.values() for part in origin.parts}

    def makers(self) -> Makers:
        passes_by_part: dict[Instruction, tuple[str, ...]] = {}
        for step in reversed(self._origins):
            now: dict[Instruction, tuple[str, ...]] = {}
            for instruction, origin in step.items():
                passes = [name for part in origin.parts for name in passes_by_part.get(part, ())]
                now[instruction] = tuple(dict.fromkeys([*passes, *origin.made_by]))
            passes_by_part = now
        return {
            name: passes_by_part.get(instruction, ()) for instruction, name in self._found.items()
        }


_LAUNCHED = frozenset({"custom-call", "fusion"})


class _Origin(NamedTuple):
    """What a fusion or library call was in the stage before, and the pass that changed it."""

    parts: list[Instruction]
    made_by: tuple[str, ...] = ()


def _origins(
    lineage: Lineage, index: int, later: Collection[Instruction]
) -> dict[Instruction, _Origin]:
    """Return where instructions of stage ``index + 1`` come from."""
    stage = lineage.stages[index + 1]
    by = stage.pass_name
    origins: dict[Instruction, _Origin] = {}
    for launch in later:
        earlier = lineage.unchanged(index, launch)
        if earlier is not None:
            origins[launch] = _Origin([earlier])
        elif lineage.is_new(index, launch):
            origins[launch] = _Origin([], (by,))
    if len(origins) == len(later):
        return origins
    by_after: dict[Instruction, list[FusionChange]] = defaultdict(list)
    for change in lineage.changes(index):
        if change.kind in _FORMING:
            for launch in change.after:
                by_after[launch].append(change)
    origins_found: dict[Instruction, _Origin] = {}
    for launch in later:
        earlier = lineage.earlier(index, launch)
        parts = [] if earlier is None else [earlier]
        parts += (part for change in by_after.get(launch, ()) for part in change.before)
        launched = [part for part in dict.fromkeys(parts) if part.opcode in _LAUNCHED]
        origins_found[launch] = _Origin(launched, (by,) if launch in by_after else ())
    return origins_found


def first_decision(
    old_module: DumpedModule, new_module: DumpedModule, notes: list[str]
) -> DecisionChange | None:
    """Return the earliest fusion, in either record, that the other compiler refused.

    Only decisions about operations that are certainly the same in both modules are compared.
    ``notes`` gets a line if others are omitted and none of those compared differs.
    """
    try:
        verdicts = read_recorded_decisions(old_module), read_recorded_decisions(new_module)
    except UnusableInput as error:
        if str(error) not in notes:
            notes.append(str(error))
        return None
    if verdicts[0] is None or verdicts[1] is None:
        return None
    if verdicts[0].pass_name != verdicts[1].pass_name:
        return None
    words = verdicts[0].by_subject, verdicts[1].by_subject
    stages = (
        _stage_before(old_module, verdicts[0].pass_name),
        _stage_before(new_module, verdicts[1].pass_name),
    )
    if stages[0] is None or stages[1] is None:
        return None
    certain = certain_matches(match(old_module.read(stages[0]), new_module.read(stages[1])))
    names = {before.name: after.name for before, after in certain.items()}
    counterparts: dict[tuple[str, ...], tuple[str, ...]] = {}
    for subject in words[0]:
        if names.keys() >= set(subject):
            counterpart = tuple(names[name] for name in subject)
            if counterpart in words[1]:
                counterparts[subject] = counterpart
    changes: list[tuple[int, DecisionChange]] = []
    for subject, counterpart in counterparts.items():
        before, after = words[0][subject], words[1][counterpart]
        if before.is_fused != after.is_fused:
            turn = before.turn if before.turn is not None else after.turn
            assert turn is not None
            changes.append((turn, DecisionChange(subject, counterpart, before, after)))
    left_out = [word for subject, word in words[0].items() if subject not in counterparts]
    compared = set(counterparts.values())
    left_out += [word for subject, word in words[1].items() if subject not in compared]
    if not changes:
        if left_out:
            notes.append(
                f"no recorded decision certainly differs: the {len(counterparts):,} about "
                f"operations that are certainly the same do not, and "
                f"{len(left_out):,} cannot be compared"
            )
        return None
    turn, first = min(changes, key=lambda change: change[0])
    if any(word.turn is not None and word.turn < turn for word in left_out):
        return replace(first, is_first=False)
    return first


def certain_matches(matching: Matching) -> dict[Instruction, Instruction]:
    """Return the certain matches, by the instructions of the first module.

    A match of operations is certain if each alone computes its value (or their computations read
    the same) from certain operands, or if the same is computed from both. A match of fusions is
    certain if that of all their operations is, and these are in the other fusion. Constants whose
    values the compiler omitted are identified by name, which is a guess.
    """
    matches: dict[Instruction, Instruction] = {}
    doubtful: set[Value] = set()  # these values depend on a guess
    once = [_found_once(matching, side) for side in (0, 1)]
    guessed: set[Computation] = set()  # their arguments may differ
    for region in reversed(matching.regions[0].values()):  # callers come below callees
        for operation, sources in zip(region.operations, region.sources, strict=True):
            step, value = matching.steps.get(operation), matching.values[operation]
            after = matching.after.get(operation)
            is_doubtful = any(matching.values[region.operations[s]] in doubtful for s in sources)
            if operation.opcode == "parameter":
                is_doubtful |= operation.computation in guessed
            elif operation.opcode == "constant":
                ends = (operation, operation if after is None else after)
                is_doubtful |= any(is_elided(end.statement.inside) for end in ends)
            if step is MatchKind.USE or (step in CERTAIN and not is_doubtful):
                assert after is not None
                is_only = value in once[0] and value in once[1]
                if is_only or operation.computation.body.written == after.computation.body.written:
                    matches[operation] = after
            elif step is not None or is_doubtful:
                doubtful.add(value)
                guessed.update(operation.called)
            if after is not None and operation.shape.elements != after.shape.elements:
                guessed.update(operation.called)  # a loop with renumbered variables
    for fusion, after in matching.after.items():
        if fusion.opcode == after.opcode == "fusion":
            members = [
                [
                    instruction
                    for instruction in fused.instructions
                    if instruction.opcode not in CARRIERS
                ]
                for fused in (fusion.called[0], after.called[0])
            ]
            if members[0] and {matches.get(member) for member in members[0]} == set(members[1]):
                matches[fusion] = after
    return matches


def _found_once(matching: Matching, side: int) -> set[Value]:
    """Return the values that exactly one operation of a module computes."""
    counts = Counter(
        matching.values[operation]
        for region in matching.regions[side].values()
        for operation, is_passed_on in zip(region.operations, region.passed_on, strict=True)
        if not is_passed_on
    )
    return {value for value, count in counts.items() if count == 1}


def _stage_before(module: DumpedModule, pass_names: tuple[str, ...]) -> Stage | None:
    """Return the stage before one of these passes."""
    for earlier, stage in pairwise(module.stages):
        if stage.name.after in pass_names:
            return earlier
    return None
