"""The differences between two files, two stages, or two dumps, the worst first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from fusionscope.compare.cost_changes import (
    CostChanges,
    KernelCosts,
    compare_costs,
    count_costs,
    moved_lines,
)
from fusionscope.compare.first_divergence import (
    DecisionChange,
    FirstDivergence,
    find_first_divergence,
    find_makers,
    first_decision,
)
from fusionscope.compare.fusions import FusionFacts, fusion_facts
from fusionscope.compare.memory_difference import (
    ChangedPair,
    MemoryDifference,
    MemorySide,
    compare_memory,
)
from fusionscope.compare.relation import Doubt, Unrelated, different_programs, different_targets
from fusionscope.dump import Dump, DumpedModule, Stage, open_dump
from fusionscope.dump.debug_options import FUSION_FLAGS
from fusionscope.dump.device import describe as describe_device
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain.analyze_module import PairOutcomes, compare_outcomes, flag_texts
from fusionscope.explain.modules import NO_FINAL, pick_modules
from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Operation, PairFacts
from fusionscope.facts.source_lines import operation_of
from fusionscope.facts.times import clock_for
from fusionscope.history.changes import (
    ChangeKind,
    Edit,
    EditKind,
    FusionChange,
    find_changes,
    is_idle,
    is_incidental,
)
from fusionscope.history.kernels import find_kernels
from fusionscope.history.lineage import Lineage, read_lineage, skim_lineage
from fusionscope.history.matching import Matching, match
from fusionscope.history.meaning import USUAL, entry_layout, normal_header
from fusionscope.history.operations import plain_shape
from fusionscope.history.outcomes import Pair
from fusionscope.history.pairing import CERTAIN
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Module
from fusionscope.progress import Progress, about, silent
from fusionscope.system.files import is_there
from fusionscope.system.memory import working_memory
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.context import read_target
from fusionscope.words.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """One of the two modules: launches, bytes and estimated microseconds of a whole run, launches
    by kind of kernel.

    path: what it was read from, as it was named on the command line
    module: name of the module
    number: number of the module in its dump
    stage: label of the stage that is compared: the final one unless another was requested
    device: the GPU that the program was compiled for, in words
    flags: compiler flags that change fusion and are not at their default, as ``name=value``
    instructions: instructions in all computations
    launches: kernels that a run launches
    bytes_moved: bytes that a run reads and writes
    time_us: estimated time of a run, microseconds; null if nothing is known of the device. For a
        CPU it is nominal
    exact: false if branches, or loops of unknown length, are counted once
    kinds: launches of kernels of this kind, as in ``kernels[].kind`` of ``explain``
    rules: the rules that gave reasons, as in ``explain``; null if none were
        looked for
    """

    path: str
    module: str
    number: int
    stage: str
    device: str | None
    flags: tuple[str, ...]
    instructions: int
    launches: int
    bytes_moved: int
    time_us: float | None = None
    exact: bool
    kinds: dict[str, int]
    rules: RulesUsed | None = None


@dataclass(frozen=True, slots=True)
class OutcomeChange:
    """A pair whose outcome changed, and the number of pairs that look alike.

    ``before`` and ``after`` are the pair on each side, with outcome, reason and message.
    """

    before: PairFacts
    after: PairFacts
    count: int

    @property
    def is_lost(self) -> bool:
        return self.after.outcome == "not-fused"


class Passes(Facts, frozen=True):
    """The passes that made fusions on each side.

    before: the passes that made these fusions on this side; empty unless two whole dumps are
        compared
    after: the passes that made these fusions on this side; empty unless two whole dumps are
        compared
    """

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class FusionDifference(FusionFacts, frozen=True, kw_only=True):
    """A change of fusions, with the passes that made them.

    passes: the passes that made the fusions
    """

    passes: Passes


@dataclass(frozen=True, slots=True, kw_only=True)
class EditFacts:
    """A plain edit, and how many edits look alike. ``fields`` are names and both texts."""

    kind: str
    before: Operation | None
    after: Operation | None
    fields: tuple[tuple[str, str, str], ...]
    step: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleDifference(Shown):
    """The differences between two modules.

    ``unrelated`` says why comparing them means little, if it does: other programs, backends or
    devices. ``costs`` are the lines or scopes of the program whose cost differs, None if none does
    or neither side says where its kernels come from.
    ``header`` are attributes of the module, with both texts: aliases, numbers of devices. ``flags``
    are compiler flags that differ, with both texts (empty: not set). ``swapped`` are the names of
    operations that read their two operands in the other order and compute the same. Neither flags
    nor swapped operands count as differences of the module. ``lost`` and ``gained`` are fusions
    that only one side has, ``changed`` and ``renamed`` count those that both have. Only whole dumps
    have ``outcomes``, ``first_divergence``, ``decision`` and ``memory``, the last only if the peaks
    or the totals differ. ``incidental`` counts edits that go with changes of fusions. ``steps``
    counts matched instructions by what matched them, ``certain`` is the share (0 to 1) of those of
    both sides that were matched by certain steps.
    """

    before: SideFacts
    after: SideFacts
    unrelated: tuple[Unrelated, ...]
    costs: CostChanges | None
    header: tuple[tuple[str, str, str], ...]
    flags: tuple[tuple[str, str, str], ...]
    swapped: tuple[str, ...]
    outcomes: tuple[OutcomeChange, ...]
    fusions: tuple[FusionDifference, ...]
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    changed: int
    renamed: int
    edits: tuple[EditFacts, ...]
    incidental: int
    first_divergence: FirstDivergence | None
    decision: DecisionChange | None
    memory: MemoryDifference | None
    steps: dict[str, int]
    certain: float
    notes: tuple[str, ...]

    @property
    def is_nominal(self) -> bool:
        """Whether times are those of a nominal CPU."""
        return self.costs is not None and self.costs.is_nominal

    @property
    def is_incomparable(self) -> bool:
        """Whether times and bytes of the two sides have nothing to do with each other."""
        return any(doubt.kind is Doubt.BACKENDS for doubt in self.unrelated)

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Return a sort key, the worst first: bytes that move again, fusions, edits."""
        lost = sum(change.before.bytes_saved for change in self.outcomes if change.is_lost)
        moved = abs(self.after.bytes_moved - self.before.bytes_moved)
        return lost, moved, len(self.fusions), len(self.edits)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A module with no differences but names, metadata, notation, the order of the text, and the
    order of operands that may be swapped. ``numbers`` are those of the module on both sides.
    ``flags`` and ``swapped`` are as in ``ModuleDifference``.
    """

    module: str
    numbers: tuple[int, int]
    flags: tuple[tuple[str, str, str], ...]
    swapped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Shown):
    """``modules`` differ, the worst first; ``same`` do not.

    ``only_before`` and ``only_after`` have no counterpart. ``problems`` are one line for each
    module that could not be read completely, ``notes`` one for each other unreadable file and for
    operations that no rule covers.
    """

    before: str
    after: str
    modules: tuple[ModuleDifference, ...]
    same: tuple[Unchanged, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return not (self.modules or self.only_before or self.only_after or self.problems)


@dataclass(frozen=True, slots=True)
class _Side:
    path: str
    dump: Dump
    stage: str | None

    def chosen(self, module: DumpedModule) -> Stage:
        if self.stage is not None:
            return module.stage(self.stage)
        return module.last


def compare(
    before: str | Path | Dump,
    after: str | Path | Dump,
    *,
    module: str | None = None,
    progress: Progress = silent,
) -> Difference:
    """Compare two HLO files, two stages (``DUMP@STAGE``) or two dumps.

    ``module`` is a glob for modules' names. Raises ``UnusableInput`` if nothing can be compared.
    """
    first = _open(before)
    sides = first, _open(after, like=first.dump)
    modules = [pick_modules(side.dump, module) for side in sides]
    pairs, unpaired = _pair_modules(*modules)
    differences: list[ModuleDifference | Unchanged] = []
    problems: list[str] = []
    for old_module, new_module in pairs:
        try:
            differences.append(
                _compare(sides, old_module, new_module, about(old_module.name, progress))
            )
            problems += (
                f"{side.path}: {NO_FINAL.format(stage=dumped.last.label)}"
                for side, dumped in zip(sides, (old_module, new_module), strict=True)
                if side.stage is None and dumped.final is None and len(dumped.stages) > 1
            )
        except UnusableInput as error:
            problems.append(str(error))
    if not differences:
        if problems:
            raise UnusableInput(problems[0])
        raise UnusableInput(
            f"no module of {sides[0].path} matches one of {sides[1].path}: "
            f"{', '.join(item.name for item in unpaired[0][:5])} against "
            f"{', '.join(item.name for item in unpaired[1][:5])}"
        )
    differing = [
        difference for difference in differences if isinstance(difference, ModuleDifference)
    ]
    reported = [*problems, *(note for item in differing for note in item.notes)]
    return Difference(
        before=sides[0].path,
        after=sides[1].path,
        modules=tuple(sorted(differing, key=lambda item: item.weight, reverse=True)),
        same=tuple(difference for difference in differences if isinstance(difference, Unchanged)),
        only_before=tuple(item.name for item in unpaired[0]),
        only_after=tuple(item.name for item in unpaired[1]),
        problems=tuple(problems),
        notes=tuple(
            dict.fromkeys(
                item for side in sides for item in side.dump.unreported_problems(reported)
            )
        ),
    )


def _open(target: str | Path | Dump, *, like: Dump | None = None) -> _Side:
    """Parse ``PATH`` or ``PATH@STAGE``, for a dump of the program of ``like``."""
    if isinstance(target, Dump):
        return _Side(str(target.path), target, None)
    text = str(target)
    path, at, stage = text.rpartition("@")
    if at and not is_there(Path(text)):
        if not path:
            raise UnusableInput(f"{quoted(text)} names a stage but no dump, expected PATH@STAGE")
        return _Side(text, open_dump(path, like=like), stage)
    return _Side(text, open_dump(text, like=like), None)


def _pair_modules(
    ours: list[DumpedModule], theirs: list[DumpedModule]
) -> tuple[list[tuple[DumpedModule, DumpedModule]], tuple[list[DumpedModule], list[DumpedModule]]]:
    """Pair modules of one name, the most similar first, and then the rest by similarity alone."""
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])], ([], [])
    likeness: list[tuple[bool, float, int, int]] = []
    histograms = [[_histogram(module) for module in side] for side in (ours, theirs)]
    for i, before in enumerate(ours):
        for j, after in enumerate(theirs):
            a, b = histograms[0][i], histograms[1][j]
            score = 2 * (a & b).total() / max((a | b).total() + (a & b).total(), 1)
            if before.name == after.name or score > _ALIKE:
                likeness.append((before.name != after.name, -score, i, j))
    pairs: dict[int, int] = {}
    matched: set[int] = set()
    for _, _, i, j in sorted(likeness):
        if i not in pairs and j not in matched:
            pairs[i] = j
            matched.add(j)
    return (
        [(ours[i], theirs[pairs[i]]) for i in sorted(pairs)],
        (
            [before for i, before in enumerate(ours) if i not in pairs],
            [after for j, after in enumerate(theirs) if j not in matched],
        ),
    )


# Modules of different names are paired from this similarity on.
_ALIKE = 0.8


def _histogram(module: DumpedModule) -> Counter[str]:
    try:
        return module.read(module.stages[0]).opcode_histogram()
    except UnusableInput as problem:
        module.note(problem)
        return Counter()


def _compare(
    sides: tuple[_Side, _Side],
    old_module: DumpedModule,
    new_module: DumpedModule,
    progress: Progress,
) -> ModuleDifference | Unchanged:
    stages = sides[0].chosen(old_module), sides[1].chosen(new_module)
    modules = old_module.read(stages[0]), new_module.read(stages[1])
    backend = old_module.backend or new_module.backend
    header, flags = compare_headers(*modules), tuple(_flags(old_module, new_module))
    final = _compare_final(modules, backend)
    fusion_changes = final.fusions
    if all(
        side.stage is None and len(module.stages) > 1
        for side, module in zip(sides, (old_module, new_module), strict=True)
    ):
        reasons = _compare_dumps(
            old_module, new_module, fusion_changes, bool(final.edits), bool(header), progress
        )
    else:
        reasons = _Reasons(_without_passes(fusion_changes, backend))
    if not (header or reasons.outcomes or reasons.memory or fusion_changes or final.edits):
        return Unchanged(
            old_module.name, (old_module.number, new_module.number), flags, final.swapped
        )
    matched = final.matched or _sum_up(match(*modules), fusion_changes)
    kernels = reasons.kernels or [
        _count_kernels(Numbering().number(module), dumped, backend)
        for module, dumped in zip(modules, (old_module, new_module), strict=True)
    ]
    before, after = (
        _side_facts(side.path, dumped, stage, module, notes_of_side, rules)
        for side, dumped, stage, module, notes_of_side, rules in zip(
            sides, (old_module, new_module), stages, modules, kernels, reasons.rules, strict=True
        )
    )
    return ModuleDifference(
        before=before,
        after=after,
        unrelated=tuple(_find_unrelated((old_module, new_module), (before, after), matched)),
        costs=_compare_costs(kernels, (old_module, new_module), matched, backend),
        header=header,
        flags=flags,
        swapped=final.swapped,
        outcomes=reasons.outcomes,
        fusions=reasons.fusions,
        lost=matched.lost,
        gained=matched.gained,
        changed=matched.changed,
        renamed=final.renamed,
        edits=final.edits,
        incidental=final.incidental,
        first_divergence=reasons.first_divergence,
        decision=reasons.decision,
        memory=reasons.memory,
        steps=matched.steps,
        certain=matched.certain,
        notes=tuple(dict.fromkeys(reasons.notes)),
    )


@dataclass(frozen=True, slots=True)
class _Matched:
    """What a matching says; the fields are those of ``ModuleDifference``. ``moved`` are lines of
    the program that are other lines now. ``programs`` says that these are different programs.
    """

    lost: tuple[str, ...]
    gained: tuple[str, ...]
    changed: int
    steps: dict[str, int]
    certain: float
    moved: dict[str, str]
    programs: Unrelated | None


def _sum_up(matching: Matching, fusion_changes: Iterable[FusionChange]) -> _Matched:
    counts = Counter(step.value for step in matching.steps.values())
    certain = sum(2 for step in matching.steps.values() if step in CERTAIN)
    total = sum(module.instruction_count for module in matching.modules)
    return _Matched(
        tuple(_alone(matching, 0)),
        tuple(_alone(matching, 1)),
        len(
            {
                instruction
                for change in fusion_changes
                for instruction in change.after
                if instruction in matching.before
            }
        ),
        dict(counts),
        certain / max(total, 1),
        moved_lines(matching),
        different_programs(matching),
    )


def _compare_costs(
    kernels: Sequence[_Kernels],
    modules: tuple[DumpedModule, DumpedModule],
    matched: _Matched,
    backend: str | None,
) -> CostChanges | None:
    """Return the places whose cost differs; None if the modules are for different backends."""
    if len({module.backend or backend for module in modules}) > 1:
        return None
    before, after = (kernel.costs for kernel in kernels)
    return compare_costs(before, after, matched.moved, is_nominal=backend == "cpu")


def _find_unrelated(
    modules: tuple[DumpedModule, DumpedModule],
    sides: tuple[SideFacts, SideFacts],
    matched: _Matched,
) -> Iterator[Unrelated]:
    """Yield why comparing two modules means little. Optimizations can leave little of a program in
    common, so the first stages decide whether there are two.
    """
    if matched.programs is not None:
        firsts = [module.stages[0] for module in modules]
        programs: Unrelated | None = matched.programs
        if any(len(module.stages) > 1 for module in modules):
            read = [module.read(first) for module, first in zip(modules, firsts, strict=True)]
            programs = different_programs(match(read[0], read[1]))
        if programs is not None:
            yield programs
    backends = modules[0].backend or "", modules[1].backend or ""
    targets = different_targets(backends, (sides[0].device, sides[1].device))
    if targets is not None:
        yield targets


@dataclass(frozen=True, slots=True)
class _FinalDifference:
    """What differs between two final modules, without their matching, which is large. ``matched``
    is None if they are equal; other fields are those of ``ModuleDifference``.
    """

    matched: _Matched | None
    fusions: list[FusionChange]
    renamed: int
    edits: tuple[EditFacts, ...]
    incidental: int
    swapped: tuple[str, ...]


def _compare_final(modules: tuple[Module, Module], backend: str | None) -> _FinalDifference:
    changes = find_changes(*modules, backend)
    visible = [edit for edit in changes.edits if not is_incidental(edit)]
    fusion_changes = sorted(
        (change for change in changes.fusions if change.kind is not ChangeKind.RENAMED),
        key=lambda change: _WORST_FIRST.index(change.kind),
    )
    return _FinalDifference(
        matched=_sum_up(changes.matching, fusion_changes) if changes.matching is not None else None,
        fusions=fusion_changes,
        renamed=len(changes.fusions) - len(fusion_changes),
        edits=_edit_facts(visible),
        incidental=len(changes.edits) - len(visible),
        swapped=tuple(edit.instruction.name for edit in changes.swapped),
    )


@dataclass(frozen=True, slots=True)
class _Reasons:
    """The causes of differences between two modules; only whole dumps have more than fusions."""

    fusions: tuple[FusionDifference, ...]
    outcomes: tuple[OutcomeChange, ...] = ()
    rules: tuple[RulesUsed | None, RulesUsed | None] = (None, None)
    first_divergence: FirstDivergence | None = None
    decision: DecisionChange | None = None
    memory: MemoryDifference | None = None
    notes: tuple[str, ...] = ()
    kernels: tuple[_Kernels, _Kernels] | None = None


def _compare_dumps(
    before: DumpedModule,
    after: DumpedModule,
    fusion_changes: list[FusionChange],
    is_edited: bool,
    has_other_header: bool,
    progress: Progress,
) -> _Reasons:
    """``fusion_changes`` are the changes of fusions; ``is_edited`` is whether there are other
    changes of instructions, ``has_other_header`` whether the headers differ.
    """
    backend = before.backend or after.backend
    tell = about("before", progress), about("after", progress)
    differs = bool(is_edited or fusion_changes or has_other_header)
    reasons = _compare_outcomes((before, after), tell, differs=differs)
    if reasons is None or not (is_edited or fusion_changes or reasons.outcomes):
        return reasons or _Reasons(())

    def trace(
        read: Callable[..., Lineage],
    ) -> tuple[list[str], FirstDivergence, tuple[FusionDifference, ...]]:
        lineages = read(before, progress=tell[0]), read(after, progress=tell[1])
        return (
            [*lineages[0].notes, *lineages[1].notes],
            find_first_divergence(lineages, progress),
            _with_passes(fusion_changes, lineages, backend, progress),
        )

    try:
        unread, first_divergence, fusions = trace(skim_lineage)
    except UnusableInput:  # without the stages that contradict themselves
        unread, first_divergence, fusions = trace(read_lineage)
    notes = [*reasons.notes, *unread]
    decision = first_decision(before, after, notes)
    return replace(
        reasons,
        fusions=fusions,
        first_divergence=first_divergence,
        decision=decision,
        notes=tuple(notes),
    )


@working_memory()
def _compare_outcomes(
    modules: tuple[DumpedModule, DumpedModule],
    progress: tuple[Progress, Progress],
    *,
    differs: bool,
) -> _Reasons | None:
    """Return how outcomes and memory differ, and the rules behind it; None if they do not."""
    pair_outcomes = compare_outcomes(modules, progress, differ=differs)
    stages = [outcomes_of_side.before for outcomes_of_side in pair_outcomes]
    outcomes: tuple[OutcomeChange, ...] = ()
    memory = None
    if stages[0] is not None and stages[1] is not None:
        matching = match(modules[0].read(stages[0]), modules[1].read(stages[1]))
        changed = list(_changed_pairs(matching, pair_outcomes))
        outcomes = _outcome_changes(changed)
        memory = _compare_memory(pair_outcomes, matching, changed)
    if not (differs or outcomes or memory):
        return None
    rules = pair_outcomes[0].rules, pair_outcomes[1].rules
    notes = *pair_outcomes[0].notes, *pair_outcomes[1].notes
    backend = modules[0].backend or modules[1].backend
    kernels_before, kernels_after = (
        _count_kernels(outcomes_of_side.ends[1], module, backend)
        for outcomes_of_side, module in zip(pair_outcomes, modules, strict=True)
    )
    return _Reasons(
        (), outcomes, rules, memory=memory, notes=notes, kernels=(kernels_before, kernels_after)
    )


def _without_passes(
    fusion_changes: Iterable[FusionChange], backend: str | None
) -> tuple[FusionDifference, ...]:
    return _made_by(Passes(), fusion_facts(fusion_changes, backend))


def _made_by(passes: Passes, changes: Iterable[FusionFacts]) -> tuple[FusionDifference, ...]:
    return tuple(FusionDifference(**structs.asdict(change), passes=passes) for change in changes)


def compare_headers(before: Module, after: Module) -> tuple[tuple[str, str, str], ...]:
    """Return the differences between the headers of two modules that affect execution."""
    headers = normal_header(before), normal_header(after)
    keys = [
        key
        for key in dict.fromkeys((*headers[0], *headers[1]))
        if headers[0].get(key) != headers[1].get(key)
        and not (key == _LAYOUT and entry_layout(before) != entry_layout(after))
    ]
    texts = [[header.get(key, USUAL.get(key, "")) for key in keys] for header in headers]
    return tuple(zip(keys, *texts, strict=True))


_LAYOUT = "entry_computation_layout"  # differences of parameters and results report these


def _flags(old_module: DumpedModule, new_module: DumpedModule) -> Iterator[tuple[str, str, str]]:
    """Yield differing compiler flags, except those about dumping."""
    try:
        before, after = old_module.flags, new_module.flags
    except UnusableInput:  # reported where they matter
        return
    if before is None or after is None:
        return
    defaults = {flag.name: flag.default for flag in FUSION_FLAGS}
    for name in sorted(before.values.keys() | after.values.keys()):
        # If one side lists every flag, a flag missing on the other side has its default.
        old = before.values.get(name, defaults.get(name) if after.complete else None)
        new = after.values.get(name, defaults.get(name) if before.complete else None)
        is_known = before.complete == after.complete or None not in (old, new)
        if old != new and is_known and not name.startswith("xla_dump_"):
            yield name, ",".join(old or ()), ",".join(new or ())


def _alone(matching: Matching, side: int) -> Iterator[str]:
    """Yield the names of fusions on one side that the other side does not have."""
    matched = (matching.after, matching.before)[side]
    for computation in matching.modules[side].reachable():
        for instruction in computation.instructions:
            if (
                instruction.opcode == "fusion"
                and instruction not in matched
                and not is_idle(matching, instruction)
            ):
                yield instruction.name


@dataclass(frozen=True, slots=True)
class _Kernels:
    """What a whole run of a module launches; the fields are those of ``SideFacts``."""

    kinds: Counter[str]
    exact: bool
    costs: KernelCosts


def _count_kernels(numbered: NumberedModule, dumped: DumpedModule, backend: str | None) -> _Kernels:
    """``backend`` is that of the other side where the dump does not show its own."""
    backend = dumped.backend or backend
    kernels = find_kernels(numbered, backend)
    try:
        clock = clock_for(numbered.module, backend, read_target(dumped))
    except UnusableInput:  # nothing says which GPU: no times
        clock = None
    times = [clock.time(kernel).nanoseconds if clock is not None else None for kernel in kernels]
    kinds: Counter[str] = Counter()
    for kernel in kernels:
        kinds[kernel.kind.value] += kernel.launches
    return _Kernels(
        kinds,
        numbered.is_whole and all(kernel.runs_known for kernel in kernels),
        count_costs(kernels, times),
    )


def _side_facts(
    path: str,
    dumped: DumpedModule,
    stage: Stage,
    module: Module,
    kernels: _Kernels,
    rules: RulesUsed | None,
) -> SideFacts:
    try:
        device, flags = dumped.device, dumped.flags
    except UnusableInput as problem:
        dumped.note(problem)
        device = flags = None
    return SideFacts(
        path=path,
        module=dumped.name,
        number=dumped.number,
        stage=stage.label,
        device=describe_device(device) if device else None,
        flags=flag_texts(flags),
        instructions=module.instruction_count,
        launches=kernels.costs.total.launches,
        bytes_moved=kernels.costs.total.bytes_moved,
        time_us=kernels.costs.total.time_us,
        exact=kernels.exact,
        kinds=dict(kernels.kinds),
        rules=rules,
    )


_WORST_FIRST = (
    ChangeKind.SPLIT, ChangeKind.DISSOLVED, ChangeKind.REMOVED, ChangeKind.SHRUNK,
    ChangeKind.DUPLICATED, ChangeKind.LIBRARY, ChangeKind.EMITTER, ChangeKind.REWRITTEN,
    ChangeKind.MERGED, ChangeKind.FORMED, ChangeKind.GROWN, ChangeKind.MULTI_OUTPUT,
    ChangeKind.WRAPPED,
)  # fmt: skip
# The ranks of edits, the worst first.
_RANKS = {"opcode": 0, "literal": 1, "shape": 1, "operands": 2}


def _edit_facts(edits: Iterable[Edit]) -> tuple[EditFacts, ...]:
    """Return edits as plain data; edits that look alike are listed once."""
    groups: dict[Hashable, list[Edit]] = defaultdict(list)
    for edit in edits:
        ends = tuple(
            (instruction.opcode, plain_shape(instruction.statement.shape))
            if instruction is not None
            else None
            for instruction in (edit.before, edit.after)
        )
        fields = tuple(
            field if field[0] in ("opcode", "literal") else field[0] for field in edit.fields
        )
        groups[edit.kind, ends, fields].append(edit)

    def rank(edit: Edit) -> int:
        if edit.kind is EditKind.UPDATED:
            return min(_RANKS.get(name, 9) for name, _, _ in edit.fields)
        return 3 if edit.kind in (EditKind.REMOVED, EditKind.INSERTED) else 4

    return tuple(
        EditFacts(
            kind=edits_alike[0].kind,
            before=operation_of(edits_alike[0].before)
            if edits_alike[0].before is not None
            else None,
            after=operation_of(edits_alike[0].after) if edits_alike[0].after is not None else None,
            fields=edits_alike[0].fields,
            step=edits_alike[0].step,
            count=len(edits_alike),
        )
        for edits_alike in sorted(
            groups.values(), key=lambda edits_alike: (rank(edits_alike[0]), -len(edits_alike))
        )
    )


def _changed_pairs(
    matching: Matching, outcomes_of_sides: tuple[PairOutcomes, PairOutcomes]
) -> Iterator[ChangedPair]:
    """Yield the pairs that both sides have, with different outcomes."""
    names = {
        (after.computation.name, after.name): (before.computation.name, before.name)
        for before, after in matching.after.items()
    }
    theirs: dict[Hashable, Pair] = {}
    for pair in outcomes_of_sides[1].costliest_first:
        ends = [names.get(end) for end in _names(pair)]
        if ends[0] is not None and ends[1] is not None:
            theirs[ends[0], ends[1]] = pair
    for pair in outcomes_of_sides[0].costliest_first:
        counterpart = theirs.get(_names(pair))
        if counterpart is not None and counterpart.outcome != pair.outcome:
            facts = outcomes_of_sides[0].explain(pair), outcomes_of_sides[1].explain(counterpart)
            yield ChangedPair((pair, counterpart), facts)


def _compare_memory(
    outcomes_of_sides: tuple[PairOutcomes, PairOutcomes],
    matching: Matching,
    changed: Iterable[ChangedPair],
) -> MemoryDifference | None:
    """Return what differs in memory; None if nothing does."""
    before, after = outcomes_of_sides[0].memory, outcomes_of_sides[1].memory
    if before is None or after is None:
        return None
    sides = (
        MemorySide(before, *outcomes_of_sides[0].ends),
        MemorySide(after, *outcomes_of_sides[1].ends),
    )
    difference = compare_memory(sides, matching, changed)
    return difference if difference is not None and not difference.is_same else None


def _outcome_changes(changed: Iterable[ChangedPair]) -> tuple[OutcomeChange, ...]:
    """Return pairs that both sides have, with different outcomes; those that look alike once."""
    groups: dict[Hashable, list[tuple[PairFacts, PairFacts]]] = defaultdict(list)
    for _, (before, after) in changed:
        alike = [(end.opcode, end.shape) for end in (before.producer, before.consumer)]
        groups[before.outcome, after.outcome, before.reason, after.reason, *alike].append(
            (before, after)
        )
    changes = [
        OutcomeChange(*changes_alike[0], len(changes_alike)) for changes_alike in groups.values()
    ]

    def rank(change: OutcomeChange) -> tuple[int, int]:
        order = 0 if change.is_lost else 1 if change.before.outcome == "not-fused" else 2
        saved = max(change.before.bytes_saved, change.after.bytes_saved)
        return order, -saved * change.count

    return tuple(sorted(changes, key=rank))


def _names(pair: Pair) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the names of producer and consumer, each with that of the computation."""
    computation = pair.producer.computation.name
    return (computation, pair.producer.name), (computation, pair.consumer.name)


def _with_passes(
    changes: list[FusionChange],
    lineages: tuple[Lineage, Lineage],
    backend: str | None,
    progress: Progress,
) -> tuple[FusionDifference, ...]:
    """Return changes with the passes that formed the fusions on both sides."""
    names = (
        {
            (operation.computation.name, operation.name)
            for change in changes
            for operation in change.before
        },
        {
            (operation.computation.name, operation.name)
            for change in changes
            for operation in change.after
        },
    )
    makers = find_makers(lineages, names, progress)

    def passes(change: FusionChange) -> tuple[tuple[str, ...], tuple[str, ...]]:
        passes_before, passes_after = (
            tuple(
                dict.fromkeys(
                    name
                    for instruction in instructions
                    for name in pass_names.get((instruction.computation.name, instruction.name), ())
                )
            )
            for instructions, pass_names in ((change.before, makers[0]), (change.after, makers[1]))
        )
        return passes_before, passes_after

    groups: dict[Hashable, tuple[tuple[tuple[str, ...], tuple[str, ...]], list[FusionChange]]] = {}
    for change in changes:
        pass_names = passes(change)
        groups.setdefault((change.kind, pass_names), (pass_names, []))[1].append(change)
    return tuple(
        change
        for pass_names, changes_alike in groups.values()
        for change in _made_by(Passes(*pass_names), fusion_facts(changes_alike, backend))
    )
