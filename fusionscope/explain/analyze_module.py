"""Analyzes one module of a dump."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.debug_options import DebugOptions, flags_that_matter
from fusionscope.dump.fusion_passes import Record, names_in_files, names_of_record
from fusionscope.dump.names import libtpu_of, tpu_build
from fusionscope.dump.tpu_target import TpuTarget
from fusionscope.errors import UnusableInput
from fusionscope.explain.miscompiled import find_miscompiled
from fusionscope.explain.modules import NO_FINAL
from fusionscope.explain.selection import Selection
from fusionscope.facts.bounds import Bounds
from fusionscope.facts.clock import Clock, KernelTime
from fusionscope.facts.finding_input import FindingInput
from fusionscope.facts.graphs import find_graphs
from fusionscope.facts.kernel_details import kernel_details
from fusionscope.facts.limits import sum_of_limits
from fusionscope.facts.module_analysis import Analysis, RefusedBytes, TriedChanges
from fusionscope.facts.needed_bytes import find_needs, needed_bytes
from fusionscope.facts.origins import Origins
from fusionscope.facts.result import (
    Alike,
    BoundSource,
    KernelFacts,
    LoopRow,
    ModuleFacts,
    PairFacts,
    Stages,
    Summary,
)
from fusionscope.facts.source_lines import operation_of, user_line
from fusionscope.facts.summary import (
    group_kernels,
    group_kinds,
    group_reasons,
    group_refusals,
    kernel_facts,
)
from fusionscope.facts.times import clock_for, sum_up
from fusionscope.findings import find_all
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.findings.memory.find import find_memory
from fusionscope.findings.memory.savings import RefusedPairs
from fusionscope.findings.movements.facts import Movements
from fusionscope.findings.vector_memory.find import is_own
from fusionscope.history.following import FollowedStages, Route, follow, follow_both
from fusionscope.history.kernels import Kernel, count_runs, find_kernels
from fusionscope.history.loops import (
    NOTHING_MORE,
    LoopFacts,
    describe_loop,
    functions_of,
    read_loop_facts,
)
from fusionscope.history.outcomes import Outcome, Pair, find_pairs
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Instruction, Module
from fusionscope.passes.context import GpuTarget
from fusionscope.passes.tpu.accuracy import build, libtpu
from fusionscope.progress import Progress, silent
from fusionscope.reasons.evidence import Evidence, read_evidence
from fusionscope.reasons.inferred import InferredReasons, infers
from fusionscope.reasons.pairs import pair_facts
from fusionscope.reasons.reasons import Reasons
from fusionscope.reasons.replayed import ReplayedReasons, SharedReplays, replay_passes
from fusionscope.rules.changes import NO_CHANGES
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.context import read_gpu, read_target
from fusionscope.versions.known import compiler_named
from fusionscope.versions.runs import find_runs
from fusionscope.words.text import first_names

if TYPE_CHECKING:
    from fusionscope.dump.device import Device

Content = TypeVar("Content")

_NO_STAGE_BEFORE = (
    "no stage right before fusion was dumped: using {stage} instead; dump with "
    "--xla_dump_hlo_pass_re=.*"
)
_NO_CODE = "no after_codegen stage: the compiler stopped before it had code for the kernels"
_ONE_STAGE = (
    "one stage only: pairs cannot be followed, kernels are shown as they are (a program that the "
    "compilation cache serves leaves no more: JAX_ENABLE_COMPILATION_CACHE=false)"
)
_NO_REASONS = (
    "no record of the compiler's decisions, so no reasons: dump again with "
    "--xla_dump_fusion_visualization too (on a large program that is slow: run it once more "
    "without --xla_dump_hlo_pass_re and put its *._fusion.* files beside these)"
)
_INFERRED = (
    "the code of this compiler is closed: reasons are inferred by rules that were found by "
    "experiment with libtpu {libtpu}{difference}; fusionscope experiment can ask the compiler"
)
_NO_REPLAY = "no pass here can be replayed, so rules of another version change nothing"
_NOT_WHOLE = "calls repeat too often to follow all of them: launches and bytes are undercounted"

_LAYOUT = re.compile(r"\{[^{}]*\}")

# The passes whose decisions the records hold, and the later passes that may still fuse a producer
# and its consumer.
_RECORDED = (Record.INSTRUCTION_FUSION, Record.PRIORITY_FUSION)
_LATER = (Record.FUSION_MERGER, Record.MULTI_OUTPUT_FUSION)


def analyze_module(
    module: DumpedModule,
    *,
    rules: str | None = None,
    device: Device | None = None,
    prices_all: bool = False,
    progress: Progress = silent,
) -> Analysis:
    """Analyze one module. Raises ``UnusableInput`` if its final stage cannot be read.

    ``rules`` names those to replay, None for those of the version that made the dump. ``device`` is
    the GPU to assume if the dump does not describe its own. ``prices_all`` is whether every value
    that several kernels compute is priced, however many there are.
    """
    notes: list[str] = []
    ends = _find_ends(module, notes)
    knowledge = _gather(module, rules, device, notes, progress)
    followed = _follow_pairs(module, ends, notes, progress)
    progress("explaining pairs and kernels")
    notes += _doubts(followed, knowledge, module)
    notes += _read(lambda: tuple(find_miscompiled(module, followed.last.module)), notes) or ()
    loops = _read(lambda: read_loop_facts(module), notes) or NOTHING_MORE
    kernels = find_kernels(followed.last, module.backend, loops)
    kernels_before = find_kernels(followed.first, module.backend, loops)
    explain_pair = _explainer(module, followed, knowledge, loops)
    facts = [explain_pair(pair) for pair in followed.pairs]
    flags = _read(lambda: module.flags, notes)
    clock = clock_for(followed.last.module, module.backend, knowledge.target)
    times = _times(clock, kernels)
    clock_before = clock_for(followed.first.module, module.backend, knowledge.target)
    times_before = _times(clock_before, kernels_before)
    needs = find_needs(followed.last, kernels, times, clock, loops)
    bounds = needs.bounds if needs is not None else None
    all_kernels = [
        kernel_facts(kernel, time, bounds, number)
        for number, (kernel, time) in enumerate(zip(kernels, times, strict=True))
    ]
    launched = list(zip(kernels, all_kernels, strict=True))
    program = _read(lambda: module.read(module.stages[0]), notes) or module.read(ends.final)
    origins = Origins()
    details = kernel_details(kernels, followed.pairs, origins)
    pairs = tuple(map(origins.of_pair, followed.pairs))
    graphs = _read(lambda: find_graphs(module, all_kernels), notes)
    findings = find_all(
        FindingInput(
            module=module,
            stages=ends.stages_of(module),
            first=followed.first,
            last=followed.last,
            kernels=launched,
            details=details,
            pairs=facts,
            gpu=knowledge.gpu,
            needs=needs,
            prices_all=prices_all,
        ),
        partial(_read, notes=notes),
    )
    return Analysis(
        facts=ModuleFacts(
            number=module.number,
            name=module.name,
            backend=module.backend,
            device=_device_in_words(knowledge),
            flags=flag_texts(flags),
            stages=Stages(ends.before.label if ends.before else None, ends.final.label),
            summary=_summary(
                followed,
                (kernels_before, kernels),
                (times_before, times),
                all_kernels,
                facts,
                bounds,
            ),
            alike=Alike(
                group_kernels(all_kernels),
                group_refusals(facts, lambda fact: fact.reason),
                group_refusals(facts, _reason_before),
            ),
            kernels=tuple(all_kernels),
            pairs=tuple(facts),
            notes=tuple(notes),
            loops=tuple(_loops(followed.last, loops)),
            graphs=graphs,
            arguments=tuple(_arguments(program)),
            rules=knowledge.replayed.rules if knowledge.replayed is not None else None,
            findings=findings,
        ),
        kernels=details,
        pairs=pairs,
        origins=tuple(origins.origins),
        stacks=tuple(origins.stacks),
        frames=tuple(origins.frames),
        bounds=bounds,
    )


def _device_in_words(knowledge: _Known) -> str | None:
    if knowledge.device is not None:
        return _describe(knowledge.device)
    return str(knowledge.tpu) if knowledge.tpu is not None else None


def _reason_before(fact: PairFacts) -> str | None:
    return fact.fused_by_later_pass.reason if fact.fused_by_later_pass is not None else None


def movements_of(
    module: DumpedModule, kernels: Sequence[KernelFacts], progress: Progress
) -> Movements:
    """Return the data movement in the final stage, whose ``kernels`` these are."""
    from fusionscope.findings.movements.find import find_movements  # rarely requested
    from fusionscope.history.lineage import read_lineage

    final = module.last
    lineage = read_lineage(module, progress=progress)
    if final not in lineage.stages:
        return Movements((), tuple(lineage.notes))
    loops = read_loop_facts(module)
    launches = find_kernels(Numbering().number(module.read(final)), module.backend, loops)
    movements = find_movements(lineage, lineage.stages.index(final), launches, kernels)
    return Movements(movements, tuple(lineage.notes))


def needed_bytes_of(module: DumpedModule) -> float | None:
    """Return the bytes that a run must read and write; None unless its kernels, and how often they
    run, are known. Raises ``UnusableInput`` if the final stage cannot be read.
    """
    final = Numbering().number(module.read(module.last))
    loops = read_loop_facts(module)
    kernels = find_kernels(final, module.backend, loops)
    clock = clock_for(final.module, module.backend, read_target(module))
    if clock is None or not all(kernel.runs_known for kernel in kernels):
        return None
    return needed_bytes(final, kernels, clock, loops)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The stage right before fusion, None if there is only one stage, and the final one."""

    before: Stage | None
    final: Stage

    def stages_of(self, module: DumpedModule) -> Sequence[Stage]:
        """Return the stages of ``module`` from the first of the two to the last."""
        first = module.stages.index(self.before or self.final)
        return module.stages[first : module.stages.index(self.final) + 1]


def _why_not_finished(module: DumpedModule) -> str:
    """Return a line on a compilation that failed, empty if there is no sign of that."""
    if module.problem:
        return f"the compiler did not finish: {module.problem}"
    if module.tpu is None or any(stage.label == "after_codegen" for stage in module.stages):
        return ""
    kernels = [
        instruction.name for instruction in module.read(module.last).walk() if is_own(instruction)
    ]
    if not kernels:
        return _NO_CODE
    return f"{_NO_CODE}; if it ran out of vmem, make the blocks of {first_names(kernels)} smaller"


def _find_ends(module: DumpedModule, notes: list[str]) -> _Ends:
    """Select the two stages. If one was not dumped, another one takes its place, with a note."""
    if problem := _read(lambda: _why_not_finished(module), notes):
        notes.append(problem)
    final = module.final
    if final is None:
        final = module.last
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
    """The sources of reasons, each None if it does not exist."""

    device: Device | None
    tpu: TpuTarget | None
    gpu: GpuTarget | None
    evidence: Evidence | None
    replayed: ReplayedReasons | None
    inferred: InferredReasons | None

    @property
    def target(self) -> GpuTarget | TpuTarget | None:
        return self.gpu or self.tpu


def _gather(
    module: DumpedModule,
    rules: str | None,
    requested: Device | None,
    notes: list[str],
    progress: Progress,
    shared: SharedReplays | None = None,
) -> _Known:
    progress("reading the compiler's records")
    evidence = _read(lambda: read_evidence(module), notes)
    compiler = compiler_named(rules)
    own_device = _read(lambda: module.device, notes)
    device = own_device or (requested if module.backend == "gpu" else None)
    notes += _device_notes(module, requested, own_device)
    replayed = _read(
        lambda: replay_passes(module, compiler, device, shared=shared, progress=progress), notes
    )
    notes += replayed.notes if replayed is not None else ()
    if compiler is not None and replayed is None:
        notes.append(_NO_REPLAY)
    gpu = _read(lambda: read_gpu(module, device), notes)
    tpu = _read(lambda: module.tpu, notes)
    inferred = infers(module, tpu)
    return _Known(device, tpu, gpu, evidence, replayed, inferred)


def try_changes(
    module: DumpedModule, selection: Selection, analysis: Analysis, progress: Progress
) -> TriedChanges:
    """Return the effect of the requested changes of rules, or of another GPU, on the module that
    ``analysis`` is about.

    Raises ``UnusableInput`` if changes of rules cannot be tried. If another GPU cannot be tried,
    that is noted.
    """
    notes: list[str] = []
    requested = selection.device if module.backend == "gpu" else None
    own_device = _read(lambda: module.device, [])  # noted by the analysis
    device = own_device or requested
    other_device = requested if requested != device else None
    if not selection.changes and other_device is None:
        return TriedChanges(None, ())
    from fusionscope.what_if.what_if import what_if

    compiler = compiler_named(selection.rules)
    if selection.changes:
        change = what_if(
            module, selection.changes, compiler, device, other_device, progress=progress
        )
        if analysis.facts.find(MemoryFacts) is None:  # its files contradict each other, as is noted
            change = replace(change, peak=None)
        return TriedChanges(change, ())
    what_if_result = _read(
        lambda: what_if(module, NO_CHANGES, compiler, device, other_device, progress=progress),
        notes,
    )
    return TriedChanges(what_if_result, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Followed:
    """Return the pairs between the first stage and the last. ``base`` is the stage that the
    recorded pass worked on, None if there is only one stage.
    """

    first: NumberedModule
    last: NumberedModule
    base: NumberedModule | None
    pairs: tuple[Pair, ...]


def _follow_pairs(
    module: DumpedModule, ends: _Ends, notes: list[str], progress: Progress
) -> _Followed:
    route = _route(module, ends, notes, progress)
    return _alone(module, ends) if route is None else _with_pairs(follow(route))


def refused_bytes(module: DumpedModule) -> RefusedBytes:
    """Return the bytes that pass through memory because pairs were not fused, without reasons.
    Raises ``UnusableInput`` if a stage cannot be read.
    """
    followed = _follow_pairs(module, _find_ends(module, []), [], silent)
    runs = count_runs(followed.first)
    return RefusedBytes(
        sum(
            pair.bytes_saved(runs[pair.path][0])
            for pair in followed.pairs
            if pair.outcome is Outcome.NOT_FUSED
        )
    )


def outcomes_of(module: DumpedModule) -> tuple[Pair, ...]:
    """Return the pairs of a module with their outcomes, without reasons. Raises ``UnusableInput``
    if a stage cannot be read.
    """
    return _follow_pairs(module, _find_ends(module, []), [], silent).pairs


def _route(module: DumpedModule, ends: _Ends, notes: list[str], progress: Progress) -> Route | None:
    """Return which stages to follow values through, None if there is only one."""
    if ends.before is None:
        return None
    following = module.stages[module.stages.index(ends.before) + 1 :]
    base = _recorded_on(module, ends.before, following)
    return Route(module, ends.before, ends.final, base, notes, progress)


def _alone(module: DumpedModule, ends: _Ends) -> _Followed:
    only = Numbering().number(module.read(ends.final))
    return _Followed(only, only, None, ())


def _with_pairs(followed: FollowedStages) -> _Followed:
    pairs = find_pairs(followed.first, followed.after_passes)
    return _Followed(followed.first, followed.last, followed.base, pairs)


def _doubts(followed: _Followed, knowledge: _Known, module: DumpedModule) -> Iterator[str]:
    """Yield notes on what limits outcomes and reasons."""
    if not (followed.first.is_whole and followed.last.is_whole):
        yield _NOT_WHOLE
    if not followed.pairs or knowledge.replayed is not None:
        return
    if knowledge.inferred is not None:
        is_other = tpu_build(module.name) != build()
        release = libtpu_of(module.name) or "this build of it"
        yield _INFERRED.format(libtpu=libtpu(), difference=f", not {release}" if is_other else "")
    elif knowledge.evidence is None:
        yield _NO_REASONS


def _explainer(
    module: DumpedModule, followed: _Followed, knowledge: _Known, loops: LoopFacts
) -> Callable[[Pair], PairFacts]:
    """Return what explains a pair."""
    reasons = None
    if followed.base is not None:
        reasons = Reasons(
            knowledge.evidence,
            knowledge.replayed,
            knowledge.inferred,
            followed.first,
            followed.base,
            module.backend,
        )
    runs = count_runs(followed.first, loops)
    names = {name for record in _LATER for name in names_of_record(record)}
    later_passes = {
        stage.label: stage.name.after for stage in module.fusion_stages if stage.name.after in names
    }
    operation = cache(operation_of)  # an instruction is in several pairs
    return lambda pair: pair_facts(pair, runs[pair.path][0], reasons, later_passes, operation)


class PairOutcomes:
    """The pairs of a module with their outcomes. Only those that are asked for are explained.

    ``before`` is the stage right before fusion, None if there is only one stage.
    """

    def __init__(
        self,
        module: DumpedModule,
        before: Stage | None,
        followed: _Followed,
        sources: _Sources,
        notes: Sequence[str],
    ) -> None:
        """``notes`` are those about the stages."""
        self._module = module
        self._sources = sources
        self._notes_on_stages = notes
        self._notes_on_memory: list[str] = []
        self._followed = followed
        self._loops = _read(lambda: read_loop_facts(module), []) or NOTHING_MORE
        self._runs = count_runs(followed.first, self._loops)
        self.before = before

    @cached_property
    def costliest_first(self) -> tuple[Pair, ...]:
        """The pairs by the bytes that fusing them saves."""
        runs = self._runs
        return tuple(
            sorted(self._followed.pairs, key=lambda pair: -pair.bytes_saved(runs[pair.path][0]))
        )

    @cached_property
    def explain(self) -> Callable[[Pair], PairFacts]:
        """What explains one of the pairs."""
        return _explainer(self._module, self._followed, self._sources.known, self._loops)

    @property
    def ends(self) -> tuple[NumberedModule, NumberedModule]:
        """The module right before fusion and the final one."""
        return self._followed.first, self._followed.last

    @cached_property
    def memory(self) -> MemoryFacts | None:
        """The memory of the module; None if no file shows it."""
        final, nothing = self._followed.last.module, RefusedPairs((), (), ())
        gpu = _read(lambda: read_gpu(self._module), [])  # a problem is noted with the reasons
        return _read(lambda: find_memory(self._module, final, nothing, gpu), self._notes_on_memory)

    @property
    def rules(self) -> RulesUsed | None:
        """The rules that were replayed."""
        replayed = self._sources.known.replayed
        return replayed.rules if replayed is not None else None

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each problem, about reasons too."""
        doubts = list(_doubts(self._followed, self._sources.known, self._module))
        _read(lambda: self._module.flags, doubts)
        _read(lambda: self._module.read(self._module.stages[0]), doubts)
        notes = *self._sources.notes, *self._notes_on_stages, *doubts, *self._notes_on_memory
        return tuple(dict.fromkeys(notes))


class _Sources:
    """The sources of a module's reasons, found when they are asked for. ``replays`` are shared with
    the other module of a comparison.
    """

    def __init__(
        self, module: DumpedModule, notes: list[str], replays: SharedReplays, progress: Progress
    ) -> None:
        self.notes = notes
        self._module = module
        self._replays = replays
        self._progress = progress

    @cached_property
    def known(self) -> _Known:
        return _gather(self._module, None, None, self.notes, self._progress, self._replays)


def compare_outcomes(
    modules: tuple[DumpedModule, DumpedModule],
    progress: tuple[Progress, Progress],
    *,
    differ: bool,
) -> tuple[PairOutcomes, PairOutcomes]:
    """Return the outcomes of two modules, of which equal stages are one ``Module``. What equal
    stages say is found out once. If the modules are known to ``differ``, reasons are found first:
    that takes memory, which is free again when values are followed.

    Raises ``UnusableInput`` if a final stage cannot be read.
    """
    notes: list[tuple[list[str], list[str]]] = [([], []), ([], [])]
    ends = [
        _find_ends(module, notes_of_side[0])
        for module, notes_of_side in zip(modules, notes, strict=True)
    ]
    replays = SharedReplays()
    sources = [
        _Sources(module, notes_of_side[0], replays, tell)
        for module, notes_of_side, tell in zip(modules, notes, progress, strict=True)
    ]
    for reader in sources if differ else ():
        _ = reader.known
    first_ends, second_ends = (
        _route(module, stages, notes_of_side[1], tell)
        for module, stages, notes_of_side, tell in zip(modules, ends, notes, progress, strict=True)
    )
    if first_ends is not None and second_ends is not None:
        followed = list(map(_with_pairs, follow_both(first_ends, second_ends)))
    else:
        followed = [
            _alone(module, stages) if route is None else _with_pairs(follow(route))
            for module, stages, route in zip(modules, ends, (first_ends, second_ends), strict=True)
        ]
    first, second = (
        PairOutcomes(module, stages.before, notes_of_side, source, explainers[1])
        for module, stages, notes_of_side, source, explainers in zip(
            modules, ends, followed, sources, notes, strict=True
        )
    )
    return first, second


def _times(clock: Clock | None, kernels: Sequence[Kernel]) -> list[KernelTime | None]:
    """Return the times of the kernels of one stage, in their order; None for each if the device is
    unknown.
    """
    return [clock.time(kernel) if clock is not None else None for kernel in kernels]


def _summary(
    followed: _Followed,
    kernels: tuple[Sequence[Kernel], Sequence[Kernel]],
    times: tuple[Sequence[KernelTime | None], Sequence[KernelTime | None]],
    facts: list[KernelFacts],
    pairs: list[PairFacts],
    bounds: Bounds | None,
) -> Summary:
    """Return the totals of ``kernels`` and ``times``, those before fusion and the final ones."""
    (before, after), (times_before, times_after) = kernels, times
    limits = sum_of_limits(bounds.limits) if bounds is not None else None
    counted = Counter(pair.outcome for pair in pairs)
    return Summary(
        launches_before=sum(kernel.launches for kernel in before),
        launches=sum(kernel.launches for kernel in after),
        bytes_before=sum(kernel.bytes_moved for kernel in before),
        bytes_moved=sum(kernel.bytes_moved for kernel in after),
        exact=all(kernel.runs_known for kernel in after),
        time_before=sum_up(before, times_before),
        time=sum_up(after, times_after),
        at_best_us=bounds.at_best(range(len(after))).time_us if bounds is not None else None,
        at_best_from=BoundSource.MODEL if bounds is not None else None,
        limited_by=limits.limited_by if limits is not None else None,
        branches=followed.last.module.opcode_histogram()["conditional"],
        kinds=group_kinds(facts),
        outcomes={outcome.value: counted[outcome] for outcome in Outcome},
        reasons=group_reasons(pairs),
    )


def _loops(numbered: NumberedModule, more: LoopFacts) -> Iterator[LoopRow]:
    """Yield the loops of a module, each once, the outermost first."""
    runs = count_runs(numbered, more)
    run_counts: dict[Instruction, int] = defaultdict(int)
    for execution in numbered.executions:
        for block in execution.blocks:
            if block.inside is None:
                for instruction in block.computation.instructions:
                    if instruction.opcode == "while":
                        run_counts[instruction] += runs[execution.path].times
    functions = functions_of(numbered.module)
    for loop, count in run_counts.items():
        description = describe_loop(loop, more)
        callers = numbered.module.callers.get(loop.computation, ())
        place = user_line(loop.stack)
        yield LoopRow(
            name=description.name,
            steps=description.steps,
            length=description.length,
            tests=description.tests,
            runs=count,
            is_function=not functions.isdisjoint(callers),
            source=str(place) if place else None,
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


def _device_notes(
    module: DumpedModule, requested: Device | None, base: Device | None
) -> Iterator[str]:
    """Yield notes on the use of the requested GPU; ``base`` is the one that the dump describes."""
    if requested is None or requested == base:
        return
    if module.backend != "gpu":
        yield f"a GPU was requested, which changes nothing for the backend {module.backend}"
    elif base is None:
        yield f"the dump does not describe its GPU: reasons are for {_describe(requested)}"
    else:
        yield (
            f"outcomes and reasons are for {_describe(base)}, the GPU of the dump; what would be "
            f"fused for {_describe(requested)} is shown as tried"
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


def _recorded_on(module: DumpedModule, before: Stage, following: Sequence[Stage]) -> Stage:
    """Return the stage that the recorded pass worked on, or ``before`` if none shows it."""
    record_names = {name for record in _RECORDED for name in names_of_record(record)}
    recorded = record_names & names_in_files(module.backend)
    for run in _read(lambda: find_runs(module), []) or ():
        if run.pass_name in recorded:
            return run.before
    for earlier, stage in pairwise((before, *following)):
        if stage.name.after in recorded:
            return earlier
    return before
