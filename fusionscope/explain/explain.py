"""Turns a dump into an explanation."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from fusionscope.dump import Dump, DumpedModule, Stage
from fusionscope.dump.debug_options import DebugOptions, flags_that_matter
from fusionscope.dump.fusion_passes import Record, names_in_files, names_of_record
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain.boundaries import find_boundaries
from fusionscope.explain.breakdown import break_down
from fusionscope.explain.clock import KernelTime
from fusionscope.explain.evidence import Evidence, read_evidence
from fusionscope.explain.kernel_pages import kernel_pages, near_kernels
from fusionscope.explain.modules import rank, weight
from fusionscope.explain.near import near_matches
from fusionscope.explain.pairs import pair_facts
from fusionscope.explain.reasons import Reasons
from fusionscope.explain.replayed import Replayed, replay_passes
from fusionscope.explain.result import (
    Breakdown,
    Explanation,
    KernelFacts,
    KernelPage,
    ModuleFacts,
    ModuleRow,
    Movement,
    PairFacts,
    Recomputation,
    Totals,
    WhatIf,
)
from fusionscope.explain.scopes import origin_of
from fusionscope.explain.selection import EVERYTHING, Selection, has_op_name, is_selected
from fusionscope.explain.suggestion import Suggestions
from fusionscope.explain.summary import (
    group_kernels,
    group_kinds,
    group_reasons,
    group_refusals,
    kernel_facts,
)
from fusionscope.explain.times import clock_for, sum_up
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.outcomes import Outcome, Pair, find_pairs
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.rules.changes import NO_CHANGES
from fusionscope.rules.messages import rule_ids
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_gpu
from fusionscope.versions.known import compiler_named
from fusionscope.versions.runs import find_runs

if TYPE_CHECKING:
    from fusionscope.dump.device import Device

Content = TypeVar("Content")
Ranked = tuple[int, tuple[ModuleRow, DumpedModule]]

NO_FINAL = "no after_optimizations stage (did the compiler crash?): using {stage} instead"

_NO_STAGE_BEFORE = (
    "no stage right before fusion was dumped: using {stage} instead; dump with "
    "--xla_dump_hlo_pass_re=.*"
)
_ONE_STAGE = (
    "one stage only: pairs cannot be followed, kernels are shown as they are (a program that the "
    "compilation cache serves leaves no more: JAX_ENABLE_COMPILATION_CACHE=false)"
)
_NO_REASONS = (
    "no record of the compiler's decisions, so no reasons: dump again with "
    "--xla_dump_fusion_visualization too (on a large program that is slow: run it once more "
    "without --xla_dump_hlo_pass_re and put its *._fusion.* files beside these)"
)
_NO_REPLAY = "no pass here can be replayed, so rules of another version change nothing"
_NOT_WHOLE = "calls repeat too often to follow all of them: launches and bytes are undercounted"

_LAYOUT = re.compile(r"\{[^{}]*\}")

# Of many modules, those are explained that make up this share of the total.
_SHARE = 0.9

_MOST_PRICED = 100  # values that several kernels compute

# The passes whose decisions the records hold, and the later passes that may still fuse a producer
# and its consumer.
_RECORDED = (Record.INSTRUCTION_FUSION, Record.PRIORITY_FUSION)
_LATER = (Record.FUSION_MERGER, Record.MULTI_OUTPUT_FUSION)


def explain(
    dump: Dump,
    selection: Selection = EVERYTHING,
    *,
    progress: Callable[[list[Ranked]], Iterable[Ranked]] = iter,
    suggest: Callable[[DumpedModule, ModuleFacts, float], Suggestions] | None = None,
) -> Explanation:
    """Explain the costliest modules of ``dump``, or those that ``selection`` names.

    ``progress`` may wrap the modules to show progress. ``suggest`` is called with an explained
    module to find what could help, and with the processor time of the explanation in seconds.
    Raises ``UnusableInput`` if nothing can be explained. An unreadable file beside readable ones is
    a problem in the result.
    """
    _check_reason(selection.reason)
    ranked, problems = rank(dump, selection.module)
    count_all = len(ranked) + len(problems)
    rows = [row for row, _ in ranked]
    count = len(ranked) if selection.all_modules else _count_costliest(rows, selection.most_modules)
    explained: dict[int, ModuleFacts] = {}
    for place, (_, module) in progress(list(enumerate(ranked[:count]))):
        begin = time.process_time()
        try:
            facts = explain_module(module, selection)
        except UnusableInput as error:
            problems.append(str(error))
            continue
        if suggest is not None:
            tried = suggest(module, facts, time.process_time() - begin)
            facts = replace(facts, suggestions=tried)
        explained[place] = facts
    told = [note for each in explained.values() for note in each.notes]
    problems += dump.untold([*problems, *told])
    if not explained:
        if count_all == 1:
            raise UnusableInput(problems[0])
        raise UnusableInput(
            f"none of {count_all} modules can be read; the first: {problems[0]}",
            file=str(dump.path),
        )
    for place, facts in explained.items():
        rows[place] = _with_figures(rows[place], facts)
    return Explanation(
        str(dump.path),
        tuple(explained.values()),
        tuple(row for place, row in enumerate(rows) if place not in explained),
        tuple(problems),
        tuple(rows),
    )


def _with_figures(row: ModuleRow, facts: ModuleFacts) -> ModuleRow:
    """A row of the table, with the findings about the module."""
    totals = facts.totals
    return replace(
        row,
        launches=totals.launches,
        bytes_moved=totals.bytes_moved,
        time_us=totals.time.microseconds if totals.time is not None else None,
        refused_bytes=sum(reason.bytes_saved for reason in facts.reasons),
    )


def _check_reason(reason: str | None) -> None:
    """Raise ``UnusableInput`` if ``reason`` is not the id of a rule."""
    if reason is not None and reason not in rule_ids():
        close = get_close_matches(reason, rule_ids(), 3, 0.4)
        raise UnusableInput(
            f"there is no reason {quoted(reason)}, expected a rule id such as "
            f"{', '.join(close or sorted(rule_ids())[:3])}"
        )


def _count_costliest(rows: Sequence[ModuleRow], most: int) -> int:
    """Return how many modules to explain, given their figures in descending order. Helpers of JAX
    count only if there is nothing else.
    """
    own = [row for row in rows if not row.is_helper] or rows
    by_time = all(row.time_us is not None for row in own)
    costs = [weight(row, by_time=by_time) for row in own]
    total, moved, count = sum(costs), 0.0, 0
    while count < min(len(costs), most) and (count == 0 or moved < _SHARE * total):
        moved += costs[count]
        count += 1
    return count


def explain_module(module: DumpedModule, selection: Selection) -> ModuleFacts:
    """Explain one module. Raises ``UnusableInput`` if its final stage cannot be read."""
    notes: list[str] = []
    ends = _find_ends(module, notes)
    known = _gather(module, selection, notes)
    followed = _follow_pairs(module, ends, notes)
    if not (followed.first.is_whole and followed.last.is_whole):
        notes.append(_NOT_WHOLE)
    kernels = find_kernels(followed.last, module.backend)
    kernels_before = find_kernels(followed.first, module.backend)
    facts = _explain_pairs(module, followed, known, kernels_before)
    if followed.pairs and known.evidence is None and known.replayed is None:
        notes.append(_NO_REASONS)
    flags = _read(lambda: module.flags, notes)
    times = _times(followed.last.module, module, known, kernels)
    times_before = _times(followed.first.module, module, known, kernels_before)
    all_kernels = [kernel_facts(kernel, time) for kernel, time in zip(kernels, times, strict=True)]
    launched = list(zip(kernels, all_kernels, strict=True))
    boundaries = find_boundaries(module, launched, ends.stages_of(module))
    program = _read(lambda: module.read(module.stages[0]), notes) or module.read(ends.final)
    told = list(zip(followed.pairs, facts, strict=True))
    selected = [fact for pair, fact in told if is_selected(pair, fact, selection)]
    near = near_matches(told, selection) if selection.picks_pairs and not selected else ()
    pages: tuple[KernelPage, ...] = ()
    if selection.kernel is not None:
        pages = kernel_pages(launched, told, selection.kernel)
        near = near if pages else near_kernels(launched, selection.kernel)
    counted = Counter(fact.outcome for fact in facts)
    movements = None
    if selection.movements:
        movements = _find_movements(module, ends.final, kernels, all_kernels, notes)
    recomputed = None
    if counted[Outcome.DUPLICATED]:
        most = None if selection.all_modules else _MOST_PRICED
        recomputed = _read(
            lambda: _find_recomputed(followed, launched, module.backend, known.gpu, most), notes
        )
    return ModuleFacts(
        number=module.number,
        name=module.name,
        backend=module.backend,
        device=_describe(known.device) if known.device else None,
        flags=flag_texts(flags),
        pre_fusion=ends.before.label if ends.before else None,
        final=ends.final.label,
        totals=_totals(kernels_before, kernels, times_before, times),
        kinds=group_kinds(all_kernels),
        heaviest=group_kernels(all_kernels),
        kernels=tuple(sorted(all_kernels, key=lambda kernel: -kernel.bytes_moved)),
        pairs=tuple(sorted(selected, key=lambda pair: -pair.bytes_saved)),
        outcomes={outcome.value: counted[outcome] for outcome in Outcome},
        reasons=group_reasons(facts),
        refusals=group_refusals(facts, lambda fact: fact.reason),
        fused_by_later_pass=group_refusals(facts, _reason_before),
        notes=tuple(notes),
        what_if=known.tried,
        boundaries=boundaries,
        movements=movements,
        recomputed=recomputed,
        arguments=tuple(_arguments(program)),
        rules=known.replayed.rules if known.replayed is not None else None,
        breakdown=_break_down(launched, told, selection),
        near=near,
        kernel_pages=pages,
    )


def _reason_before(fact: PairFacts) -> str | None:
    return fact.fused_by_later_pass.reason if fact.fused_by_later_pass is not None else None


def _find_movements(
    module: DumpedModule,
    final: Stage,
    kernels: Sequence[Kernel],
    facts: Sequence[KernelFacts],
    notes: list[str],
) -> tuple[Movement, ...]:
    """Return the data movement in the final stage. Unreadable stages are noted."""
    from fusionscope.explain.movements import find_movements  # rarely requested
    from fusionscope.history.lineage import read_lineage

    lineage = read_lineage(module)
    notes += [note for note in lineage.notes if note not in notes]
    if final not in lineage.stages:
        return ()
    return find_movements(lineage, lineage.stages.index(final), kernels, facts)


def _break_down(
    kernels: Sequence[tuple[Kernel, KernelFacts]],
    pairs: Sequence[tuple[Pair, PairFacts]],
    selection: Selection,
) -> Breakdown:
    """Break down the kernels and pairs with the requested operation name."""
    pattern = selection.op_name
    if pattern is not None:
        kernels = [each for each in kernels if has_op_name(origin_of(each[0].instruction), pattern)]
        pairs = [each for each in pairs if has_op_name(each[0].producer, pattern)]
    return break_down(kernels, pairs, selection.by, selection.sorted_by)


def _find_recomputed(
    followed: _Followed,
    kernels: Sequence[tuple[Kernel, KernelFacts]],
    backend: str | None,
    gpu: GpuTarget | None,
    most: int | None,
) -> Recomputation:
    from fusionscope.explain.recomputed import find_recomputed  # only some modules need it

    return find_recomputed(followed.first, followed.last, kernels, backend, gpu, most=most)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The stage right before fusion, None if there is only one stage, and the final one."""

    before: Stage | None
    final: Stage

    def stages_of(self, module: DumpedModule) -> Sequence[Stage]:
        """Return the stages of ``module`` from the first of the two to the last."""
        first = module.stages.index(self.before or self.final)
        return module.stages[first : module.stages.index(self.final) + 1]


def _find_ends(module: DumpedModule, notes: list[str]) -> _Ends:
    """Select the two stages. If one was not dumped, another one takes its place, with a note."""
    final = module.final
    if final is None:
        final = module.stages[-1]
        if len(module.stages) > 1:
            notes.append(NO_FINAL.format(stage=final.label))
    before = module.pre_fusion
    if before is None and module.stages[0] is not final:
        before = module.stages[0]
        notes.append(_NO_STAGE_BEFORE.format(stage=before.label))
    if before is None or before is final:
        notes.append(_ONE_STAGE)
        return _Ends(None, final)
    return _Ends(before, final)


@dataclass(frozen=True, slots=True)
class _Known:
    """The sources of reasons, each None if it does not exist.

    ``tried`` is the effect of the requested changes of rules, or of another GPU.
    """

    device: Device | None
    gpu: GpuTarget | None
    evidence: Evidence | None
    replayed: Replayed | None
    tried: WhatIf | None


def _gather(module: DumpedModule, selection: Selection, notes: list[str]) -> _Known:
    """Raises ``UnusableInput`` if the requested changes cannot be tried."""
    evidence = _read(lambda: read_evidence(module), notes)
    compiler = compiler_named(selection.rules)
    asked = selection.device if module.backend == "gpu" else None
    own = _read(lambda: module.device, notes)
    device = own or asked
    notes += _device_notes(module, selection.device, own)
    replayed = _read(lambda: replay_passes(module, compiler, device), notes)
    if compiler is not None and replayed is None:
        notes.append(_NO_REPLAY)
    other = asked if asked != device else None
    tried = _try_changes(module, selection, compiler, device, other, notes)
    gpu = _read(lambda: read_gpu(module, device), notes)
    return _Known(device, gpu, evidence, replayed, tried)


def _try_changes(
    module: DumpedModule,
    selection: Selection,
    compiler: Compiler | None,
    device: Device | None,
    other: Device | None,
    notes: list[str],
) -> WhatIf | None:
    """Try the requested changes. Raises ``UnusableInput`` if changes of rules cannot be tried; if
    ``other``, another GPU, cannot be tried, that is noted.
    """
    if not selection.changes and other is None:
        return None
    from fusionscope.explain.what_if import what_if

    if selection.changes:
        return what_if(module, selection.changes, compiler, device, other)
    return _read(lambda: what_if(module, NO_CHANGES, compiler, device, other), notes)


@dataclass(frozen=True, slots=True)
class _Followed:
    """Return the pairs between the first stage and the last. ``base`` is the stage that the
    recorded pass worked on, None if there is only one stage.
    """

    first: NumberedModule
    last: NumberedModule
    base: NumberedModule | None
    pairs: tuple[Pair, ...]


def _follow_pairs(module: DumpedModule, ends: _Ends, notes: list[str]) -> _Followed:
    numbering = Numbering()
    if ends.before is None:
        only = numbering.number(module.read(ends.final))
        return _Followed(only, only, None, ())
    first = numbering.number(module.read(ends.before))
    stages, base = _follow(module, ends.before, ends.final, numbering, first, notes)
    return _Followed(first, stages[-1][1], base, find_pairs(first, stages))


def _explain_pairs(
    module: DumpedModule, followed: _Followed, known: _Known, kernels_before: Sequence[Kernel]
) -> list[PairFacts]:
    reasons = None
    if followed.base is not None:
        reasons = Reasons(
            known.evidence, known.replayed, followed.first, followed.base, module.backend
        )
    runs = {kernel.path: kernel.runs for kernel in kernels_before}
    names = {name for record in _LATER for name in names_of_record(record)}
    later_passes = {
        stage.label: stage.name.after for stage in module.fusion_stages if stage.name.after in names
    }
    return [
        pair_facts(pair, runs.get(pair.path, 1), reasons, later_passes) for pair in followed.pairs
    ]


def _times(
    stage: Module, module: DumpedModule, known: _Known, kernels: Sequence[Kernel]
) -> list[KernelTime | None]:
    """Return the times of the kernels of one stage, in their order; None for each if the device is
    unknown.
    """
    clock = clock_for(stage, module.backend, known.gpu)
    return [clock.time(kernel) if clock is not None else None for kernel in kernels]


def _totals(
    before: Sequence[Kernel],
    after: Sequence[Kernel],
    times_before: Sequence[KernelTime | None],
    times: Sequence[KernelTime | None],
) -> Totals:
    return Totals(
        sum(kernel.runs for kernel in before),
        sum(kernel.runs for kernel in after),
        sum(kernel.bytes_moved for kernel in before),
        sum(kernel.bytes_moved for kernel in after),
        all(kernel.runs_known for kernel in after),
        sum_up(before, times_before),
        sum_up(after, times),
    )


def _arguments(program: Module) -> Iterator[str]:
    is_partitioned = program.attributes.get("num_partitions", "1") != "1"
    for parameter in program.entry.parameters:
        shape = _LAYOUT.sub("", str(parameter.shape))
        sharding = parameter.attributes.get("sharding") if is_partitioned else None
        yield shape if sharding is None else f"{shape} sharding={sharding}"


def _describe(device: Device) -> str:
    from fusionscope.dump.device import describe  # CPUs do not need the table of cards

    return describe(device)


def _device_notes(module: DumpedModule, asked: Device | None, own: Device | None) -> Iterator[str]:
    """Yield notes on the use of the requested GPU; ``own`` is the one that the dump describes."""
    if asked is None or asked == own:
        return
    if module.backend != "gpu":
        yield f"a GPU was requested, which changes nothing for the backend {module.backend}"
    elif own is None:
        yield f"the dump does not describe its GPU: reasons are for {_describe(asked)}"
    else:
        yield (
            f"outcomes and reasons are for {_describe(own)}, the GPU of the dump; what would be "
            f"fused for {_describe(asked)} is shown as tried"
        )


def flag_texts(flags: DebugOptions | None) -> tuple[str, ...]:
    """Return ``name=value`` for each flag that changes fusion and is not at its default."""
    if flags is None:
        return ()
    return tuple(f"{flag.name}={','.join(values)}" for flag, values in flags_that_matter(flags))


def _read(read: Callable[[], Content | None], notes: list[str]) -> Content | None:
    """Return the content of a side file, or note that it cannot be read."""
    try:
        return read()
    except UnusableInput as error:
        if str(error) not in notes:
            notes.append(str(error))
        return None


def _follow(
    module: DumpedModule,
    before: Stage,
    final: Stage,
    numbering: Numbering,
    first: NumberedModule,
    notes: list[str],
) -> tuple[list[tuple[str, NumberedModule]], NumberedModule]:
    """Number the stages from ``before`` to ``final``.

    Returns the stages after fusion passes, the final one last, and the one that the recorded pass
    worked on. Except for the final stage, a stage that cannot be read is omitted and noted.
    """
    passes = set(module.fusion_stages) | {final}
    following = module.stages[module.stages.index(before) + 1 :]
    base_stage = _recorded_on(module, before, following)
    stages: list[tuple[str, NumberedModule]] = []
    latest, latest_read = first, module.read(before)
    base = first
    for stage in following:
        if stage.is_final and stage is not final:
            continue
        try:
            current = module.read(stage)
        except UnusableInput as error:
            if stage is final:
                raise
            notes.append(str(error))
            continue
        contents = stage in passes or stage is base_stage
        if contents or current.bodies != latest_read.bodies:
            latest, latest_read = numbering.number(current, contents=contents), current
        if stage is base_stage:
            base = latest
        if stage in passes:
            stages.append((stage.label, latest))
        if stage is final:
            break
    return stages, base


def _recorded_on(module: DumpedModule, before: Stage, following: Sequence[Stage]) -> Stage:
    """Return the stage that the recorded pass worked on, or ``before`` if none shows it."""
    named = {name for record in _RECORDED for name in names_of_record(record)}
    recorded = named & names_in_files(module.backend)
    for run in _read(lambda: find_runs(module), []) or ():
        if run.pass_name in recorded:
            return run.before
    for earlier, stage in pairwise((before, *following)):
        if stage.name.after in recorded:
            return earlier
    return before
