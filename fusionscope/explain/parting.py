"""Where two compilations of one program part: the pass, the decision, who made each fusion."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.explain.verdicts import Verdict, read_verdicts
from fusionscope.history.changes import CARRIERS, ChangeKind, FusionChange, same_but_for_notes
from fusionscope.history.lineage import Lineage
from fusionscope.history.matching import match
from fusionscope.hlo import Instruction, Module


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two compilations part for good: the last stage in which they are the same (None where
    they never are), and the first one after it, on the side that has it first."""

    last_same: str | None
    stage_before: str | None
    stage_after: str | None


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """The first decision of the compiler's record that came out differently.

    ``is_near_tie`` where one side expected to gain or lose less than 5%; None where there are no
    estimates.
    """

    producer_before: str
    producer_after: str
    before: Verdict
    after: Verdict
    is_near_tie: bool | None


def find_parting(
    lineages: tuple[Lineage, Lineage], progress: Callable[[Iterable[Stage]], Iterable[Stage]]
) -> Parting:
    """Looks back from the end for the last stage in which both are the same.

    Stages are laid beside each other by pipeline and pass; one side may lack some.
    """
    sides = [_changing(lineage) for lineage in lineages]
    keys = [
        [(stage.name.pipeline, stage.name.after or stage.label) for stage, _ in side]
        for side in sides
    ]
    for own in keys:
        own[-1] = ("", "final")  # its name tells the device
    blocks = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks()
    beside = [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]
    last: tuple[int, int] | None = None
    rows = beside[::-1]
    for (i, j), _ in zip(rows, progress([sides[0][i][0] for i, _ in rows]), strict=True):
        if _is_same(sides[0][i][1], sides[1][j][1]):
            last = (i, j)
            break
    i, j = last or (-1, -1)
    first = [side[index + 1] if index + 1 < len(side) else None
             for side, index in zip(keys, (i, j), strict=True)]  # fmt: skip
    labels = [side[index + 1][0].label if index + 1 < len(side) else None
              for side, index in zip(sides, (i, j), strict=True)]  # fmt: skip
    if first[0] != first[1]:
        # A pass that the other side does not come to any more is the one.
        rest = keys[0][i + 1 :], keys[1][j + 1 :]
        alone = [first[0] not in rest[1], first[1] not in rest[0]]
        if alone[0] != alone[1]:
            labels[alone[0]] = None
    return Parting(sides[0][i][0].label if last else None, labels[0], labels[1])


def _changing(lineage: Lineage) -> list[tuple[Stage, Module]]:
    """The stages after something changed, and the last one."""
    found: list[tuple[Stage, Module]] = []
    last = lineage.stages[-1]
    for stage, module in zip(lineage.stages, lineage.modules, strict=True):
        is_changed = not found or found[-1][1].bodies != module.bodies
        if stage is last and not is_changed and len(found) > 1:
            found.pop()
        if stage is last or is_changed:
            found.append((stage, module))
    return found


def _is_same(one: Module, other: Module) -> bool:
    """Whether two stages say the same, but for names, metadata and notes to later passes."""
    written = [[(body.name, body.written) for body in module.bodies] for module in (one, other)]
    if written[0] == written[1]:
        return True
    counts = [
        Counter(
            statement.opcode
            for computation in module.reachable()
            for statement in computation.body.written
            if statement.opcode not in CARRIERS
        )
        for module in (one, other)
    ]
    return counts[0] == counts[1] and same_but_for_notes(match(one, other))


_FORMING = frozenset(
    {ChangeKind.FORMED, ChangeKind.GROWN, ChangeKind.MERGED, ChangeKind.DUPLICATED,
     ChangeKind.MULTI_OUTPUT, ChangeKind.LIBRARY, ChangeKind.WRAPPED, ChangeKind.SPLIT}
)  # fmt: skip


def find_makers(
    lineage: Lineage, progress: Callable[[Iterable[Stage]], Iterable[Stage]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The passes that made each fusion of the last stage what it is, in order, by computation and
    name."""
    made: dict[Instruction, tuple[str, ...]] = {}
    for index, stage in enumerate(progress(lineage.stages[1:])):
        by_after: dict[Instruction, list[FusionChange]] = defaultdict(list)
        for change in lineage.changes(index):
            if change.kind in _FORMING:
                for each in change.after:
                    by_after[each].append(change)
        now: dict[Instruction, tuple[str, ...]] = {}
        for instruction in _launched_fusions(lineage.modules[index + 1]):
            before: list[str] = []
            earlier = lineage.earlier(index, instruction)
            if earlier is not None:
                before += made.get(earlier, ())
            for change in by_after[instruction]:
                for part in change.before:
                    before += made.get(part, ())
            if by_after[instruction]:
                before.append(stage.name.after or stage.label)
            now[instruction] = tuple(dict.fromkeys(before))
        made = now
    return {(each.computation.name, each.name): passes for each, passes in made.items()}


def _launched_fusions(module: Module) -> Iterator[Instruction]:
    for computation in module.computations:
        for instruction, statement in zip(
            computation.instructions, computation.graph.statements, strict=True
        ):
            if statement.opcode in ("custom-call", "fusion"):
                yield instruction


def first_decision(
    one: DumpedModule, other: DumpedModule, notes: list[str]
) -> DecisionChange | None:
    """The first decision of the records that came out differently, in the order of the first."""
    try:
        verdicts = read_verdicts(one), read_verdicts(other)
    except UnusableInput as error:
        if str(error) not in notes:
            notes.append(str(error))
        return None
    if verdicts[0] is None or verdicts[1] is None:
        return None
    stages = [_stage_before(m, v.pass_name) for m, v in zip((one, other), verdicts, strict=True)
              if v is not None]  # fmt: skip
    if stages[0] is None or stages[1] is None:
        return None
    matching = match(one.read(stages[0]), other.read(stages[1]))
    names = {before.name: after.name for before, after in matching.after.items()}
    for producer, verdict in verdicts[0].by_producer.items():
        counterpart = verdicts[1].by_producer.get(names.get(producer, ""))
        if counterpart is not None and counterpart.is_fused != verdict.is_fused:
            estimates = [each.estimate for each in (verdict, counterpart)]
            ties = [estimate.is_near_tie for estimate in estimates if estimate is not None]
            return DecisionChange(
                producer, names[producer], verdict, counterpart, any(ties) if ties else None
            )
    return None


def _stage_before(module: DumpedModule, pass_names: tuple[str, ...]) -> Stage | None:
    """The stage on which one of these passes worked."""
    for earlier, stage in pairwise(module.stages):
        if stage.name.after in pass_names:
            return earlier
    return None
