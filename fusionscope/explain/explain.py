"""From a dump to an explanation."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import pairwise
from math import inf
from pathlib import PurePath
from typing import TypeAlias, TypeVar

from fusionscope.dump import Dump, DumpedModule, Stage
from fusionscope.dump.debug_options import DebugOptions, flags_that_matter
from fusionscope.dump.device import Device, describe
from fusionscope.errors import UnusableInput
from fusionscope.explain.advice import RULE_TEXTS, advice_for
from fusionscope.explain.boundaries import find_boundaries
from fusionscope.explain.carriers import Carriers, Step, Uses
from fusionscope.explain.costs import cost_facts
from fusionscope.explain.evidence import Evidence, Reason, read_evidence
from fusionscope.explain.replayed import Replayed, replay_passes
from fusionscope.explain.result import (
    AlikeKernels,
    Explanation,
    KernelFacts,
    KindFacts,
    ModuleFacts,
    Operation,
    Overruled,
    PairFacts,
    ReasonFacts,
    Refusals,
    Totals,
)
from fusionscope.explain.what_if import what_if
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.outcomes import Outcome, Pair, find_pairs
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Instruction, Module, SourceLocation
from fusionscope.hlo.shape import Shape
from fusionscope.replay.passes import find_runs
from fusionscope.rules.books import books_named
from fusionscope.rules.changes import NO_CHANGES, Changes
from fusionscope.rules.gpu.fusion import AllUsers
from fusionscope.rules.messages import RULE_IDS, UNKNOWN, rule_of

Content = TypeVar("Content")

# What is recorded and what is replayed, and all rules that kept a producer out of consumers.
_Answer: TypeAlias = "tuple[Reason | None, Reason | None, frozenset[str]]"

NO_FINAL = "no after_optimizations stage (did the compiler die?): {stage} stands for it"

NOT_WHOLE = "calls repeat too often to follow them all: launches and bytes are too few"

_LAYOUT = re.compile(r"\{[^{}]*\}")

# As many elements of a tuple are shown.
_MOST_ELEMENTS = 64

# Of many modules those are explained that move this share of all bytes, and at most so many.
_SHARE, _MOST = 0.9, 5

# Reasons for which a library fusion stands on one side: then the library's own rule is told too.
_AT_A_LIBRARY = ("cpu-skip-custom", "cpu-loop-fusible-producer")

# Reasons for which a fusion of a dot, that another pass formed, stands on one side.
_AT_A_DOT = ("pf-is-fusible",)

# The pass whose decisions the records hold, by backend.
_RECORDED_PASS = {"cpu": ("fusion",), "gpu": ("priority-fusion", "fusion"), "tpu": ("tpu_fusion",)}

# Passes after that one which fuse a producer and its consumer all the same.
_OVERRULING = frozenset(
    """cpu_multi_output_fusion fusion_merger multi_output_fusion tpu_multi_output_fusion""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a dump is asked for; None asks for everything. Globs are those of the shell.

    ``changes`` are changes of the compiler's rules to be tried, ``rules`` the name of the rules to
    go by, None for those of the version that made the dump. ``device`` is the GPU to take where the
    dump does not tell its own, and to try where it does.
    """

    module: str | None = None
    computation: str | None = None
    producer: str | None = None
    consumer: str | None = None
    opcode: str | None = None
    source: str | None = None
    reason: str | None = None
    all_modules: bool = False
    changes: Changes = NO_CHANGES
    rules: str | None = None
    device: Device | None = None

    @property
    def picks_pairs(self) -> bool:
        wanted = (
            self.computation, self.producer, self.consumer, self.opcode, self.source, self.reason
        )  # fmt: skip
        return any(value is not None for value in wanted)


def explain(
    dump: Dump,
    selection: Selection = Selection(),
    *,
    progress: Callable[[Iterable[DumpedModule]], Iterable[DumpedModule]] = iter,
) -> Explanation:
    """Explains the modules of ``dump`` that cost most, or those that ``selection`` names.

    ``progress`` may wrap the modules to show how far the work is. Raises ``UnusableInput`` where
    nothing can be explained; a file that cannot be read beside others that can is a problem told
    in the result.
    """
    if selection.reason is not None and selection.reason not in RULE_IDS:
        close = get_close_matches(selection.reason, RULE_IDS, 3, 0.4)
        raise UnusableInput(
            f"no reason is called {selection.reason!r}, expected a rule id such as "
            f"{', '.join(close or sorted(RULE_IDS)[:3])}"
        )
    costs, problems = _costs(dump, selection.module)
    count_all = len(costs) + len(problems)
    shown, folded = costs, []
    if not selection.all_modules:
        total, moved, count = sum(cost for cost, _ in costs), 0, 0
        while count < min(len(costs), _MOST) and (count == 0 or moved < _SHARE * total):
            moved += costs[count][0]
            count += 1
        shown, folded = costs[:count], costs[count:]
    explained: list[ModuleFacts] = []
    for module in progress([module for _, module in shown]):
        try:
            explained.append(explain_module(module, selection))
        except UnusableInput as error:
            problems.append(str(error))
    problems += dump.untold([*problems, *(note for each in explained for note in each.notes)])
    if not explained:
        if count_all == 1:
            raise UnusableInput(problems[0])
        raise UnusableInput(
            f"none of {count_all} modules can be read; the first: {problems[0]}",
            file=str(dump.path),
        )
    return Explanation(
        str(dump.path),
        tuple(explained),
        tuple((module.name, cost) for cost, module in folded),
        tuple(problems),
    )


def pick_modules(dump: Dump, wanted: str | None) -> list[DumpedModule]:
    """The modules that ``wanted`` names (a glob or a number; None: all). Raises ``UnusableInput``
    where there is none."""
    modules = [
        module
        for module in dump.modules
        if wanted is None or fnmatchcase(module.name, wanted) or wanted == str(module.number)
    ]
    if not modules:
        names = ", ".join(sorted({module.name for module in dump.modules})[:8])
        raise UnusableInput(f"no module matches {wanted!r}, there are {names}", file=str(dump.path))
    return modules


def pick_module(dump: Dump, wanted: str | None) -> DumpedModule:
    """The one module that ``wanted`` names. Raises ``UnusableInput`` where that are several."""
    picked = pick_modules(dump, wanted)
    if len(picked) > 1:
        names = ", ".join(f"{each.name} ({each.number})" for each in picked[:8])
        raise UnusableInput(f"several modules: {names}", hint="name one with --module")
    return picked[0]


def rank_modules(dump: Dump, wanted: str | None) -> tuple[list[DumpedModule], list[str]]:
    """The modules that ``wanted`` names (a glob or a number; None: all), the costliest first, and
    one line for each that cannot be read. Raises ``UnusableInput`` where there is none."""
    costs, problems = _costs(dump, wanted)
    return [module for _, module in costs], problems


def _costs(dump: Dump, wanted: str | None) -> tuple[list[tuple[int, DumpedModule]], list[str]]:
    modules = pick_modules(dump, wanted)
    problems: list[str] = []
    costs: list[tuple[int, DumpedModule]] = []
    for module in modules:
        try:
            costs.append((_cost(module) if len(modules) > 1 else 0, module))
        except UnusableInput as error:
            problems.append(str(error))
    costs.sort(key=lambda cost: -cost[0])
    return costs, problems


def _cost(module: DumpedModule) -> int:
    """Bytes that the last stage moves: what modules are ranked by."""
    last = module.final or module.stages[-1]
    numbered = Numbering().number(module.read(last))
    return sum(kernel.bytes_moved for kernel in find_kernels(numbered, module.backend))


def explain_module(module: DumpedModule, selection: Selection) -> ModuleFacts:
    """Explains one module. Raises ``UnusableInput`` where its final stage cannot be read."""
    notes: list[str] = []
    final = module.final
    if final is None:
        final = module.stages[-1]
        if len(module.stages) > 1:
            notes.append(NO_FINAL.format(stage=final.label))
    before = module.pre_fusion
    if before is None and module.stages[0] is not final:
        before = module.stages[0]
        notes.append(
            f"no stage right before fusion was dumped: {before.label} stands for it; dump with "
            "--xla_dump_hlo_pass_re=.*"
        )
    if before is None or before is final:
        before = None
        notes.append(
            "one stage only: no pairs can be followed, kernels are shown as they are (a program "
            "that the compilation cache knows leaves no more: JAX_ENABLE_COMPILATION_CACHE=false)"
        )
    evidence = _read(lambda: read_evidence(module), notes)
    books = books_named(selection.rules)
    asked = selection.device if module.backend == "gpu" else None
    own = _read(lambda: module.device, notes)
    device = own or asked
    other = asked if asked != device else None
    notes += _device_notes(module, selection.device, own)
    replayed = _read(lambda: replay_passes(module, books, device), notes)
    if books is not None and replayed is None:
        notes.append("no pass here can be replayed, so rules of another version change nothing")
    tried = None
    if selection.changes:
        tried = what_if(module, selection.changes, books, device, other)
    elif other is not None:
        tried = _read(lambda: what_if(module, NO_CHANGES, books, device, other), notes)
    numbering = Numbering()
    base: NumberedModule | None = None
    if before is None:
        numbered = numbering.number(module.read(final))
        first = numbered
        pairs: tuple[Pair, ...] = ()
    else:
        first = numbering.number(module.read(before))
        stages, base = _follow(module, before, final, numbering, first, notes)
        numbered = stages[-1][1]
        pairs = find_pairs(first, stages)
    if not (first.is_whole and numbered.is_whole):
        notes.append(NOT_WHOLE)
    kernels = find_kernels(numbered, module.backend)
    kernels_before = find_kernels(first, module.backend)
    runs = {kernel.path: kernel.runs for kernel in kernels_before}
    reasons = _Reasons(evidence, replayed, base) if base is not None else None
    overruling = {
        stage.label: stage.name.after
        for stage in module.fusion_stages
        if stage.name.after in _OVERRULING
    }
    facts = [_pair_facts(pair, runs.get(pair.path, 1), reasons, overruling) for pair in pairs]
    selected = [
        fact for pair, fact in zip(pairs, facts, strict=True) if _selected(pair, fact, selection)
    ]
    if pairs and evidence is None and replayed is None:
        notes.append(
            "no record of the compiler's decisions, so no reasons: dump again with "
            "--xla_dump_fusion_visualization too (on a large program that is slow: run it once "
            "more without --xla_dump_hlo_pass_re and put its *._fusion.* files beside these)"
        )
    flags = _read(lambda: module.flags, notes)
    kernel_facts = [_kernel_facts(kernel) for kernel in kernels]
    first_stage = module.stages.index(before or final)
    boundaries = find_boundaries(
        module,
        flags,
        list(zip(kernels, kernel_facts, strict=True)),
        module.stages[first_stage : module.stages.index(final) + 1],
    )
    counted = Counter(fact.outcome for fact in facts)
    program = _read(lambda: module.read(module.stages[0]), notes) or module.read(final)
    return ModuleFacts(
        number=module.number,
        name=module.name,
        backend=module.backend,
        device=describe(device) if device else None,
        flags=flag_texts(flags),
        pre_fusion=before.label if before else None,
        final=final.label,
        totals=Totals(
            sum(kernel.runs for kernel in kernels_before),
            sum(kernel.runs for kernel in kernels),
            sum(kernel.bytes_moved for kernel in kernels_before),
            sum(kernel.bytes_moved for kernel in kernels),
            all(kernel.runs_known for kernel in kernels),
        ),
        kinds=_kinds(kernel_facts),
        heaviest=_heaviest(kernel_facts),
        kernels=tuple(sorted(kernel_facts, key=lambda kernel: -kernel.bytes_moved)),
        pairs=tuple(sorted(selected, key=lambda pair: -pair.bytes_saved)),
        outcomes={outcome.value: counted[outcome] for outcome in Outcome},
        reasons=_reasons(facts),
        refusals=_refusals(facts, lambda fact: fact.reason),
        overruled=_refusals(facts, lambda fact: fact.overruled.reason if fact.overruled else None),
        notes=tuple(notes),
        what_if=tried,
        boundaries=boundaries,
        arguments=tuple(_arguments(program)),
        rules=replayed.rules if replayed is not None else None,
    )


def _arguments(program: Module) -> Iterator[str]:
    is_partitioned = program.attributes.get("num_partitions", "1") != "1"
    for parameter in program.entry.parameters:
        shape = _LAYOUT.sub("", str(parameter.shape))
        sharding = parameter.attributes.get("sharding") if is_partitioned else None
        yield shape if sharding is None else f"{shape} sharding={sharding}"


def _device_notes(module: DumpedModule, asked: Device | None, own: Device | None) -> Iterator[str]:
    """What becomes of the GPU that was asked for; ``own`` is the one that the dump tells."""
    if asked is None or asked == own:
        return
    if module.backend != "gpu":
        yield f"a GPU was asked for, which changes nothing for the backend {module.backend}"
    elif own is None:
        yield f"which GPU it was made for is not in the dump: reasons are for {describe(asked)}"
    else:
        yield (
            f"outcomes and reasons are for {describe(own)}, as the dump is; what would be fused "
            f"for {describe(asked)} is told as tried"
        )


def flag_texts(flags: DebugOptions | None) -> tuple[str, ...]:
    """``name=value`` for each flag that changes fusion and is not at its default."""
    if flags is None:
        return ()
    return tuple(f"{flag.name}={','.join(values)}" for flag, values in flags_that_matter(flags))


def _kinds(kernels: list[KernelFacts]) -> tuple[KindFacts, ...]:
    by_kind: dict[str, list[KernelFacts]] = defaultdict(list)
    for kernel in kernels:
        by_kind[kernel.kind].append(kernel)
    kinds = [
        KindFacts(kind, len(own), sum(k.runs for k in own), sum(k.bytes_moved for k in own))
        for kind, own in by_kind.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.bytes_moved))


def _heaviest(kernels: list[KernelFacts]) -> tuple[AlikeKernels, ...]:
    alike: dict[tuple[object, ...], list[KernelFacts]] = defaultdict(list)
    for kernel in kernels:
        alike[
            kernel.kind, kernel.emitter, tuple(sorted(kernel.members)), kernel.bytes_read,
            kernel.bytes_written, kernel.runs, kernel.source,
        ].append(kernel)  # fmt: skip
    heaviest = [
        AlikeKernels(own[0], len(own), sum(kernel.bytes_moved for kernel in own))
        for own in alike.values()
    ]
    return tuple(sorted(heaviest, key=lambda kernels: -kernels.bytes_moved))


def _reasons(facts: list[PairFacts]) -> tuple[ReasonFacts, ...]:
    by_reason: dict[str, list[PairFacts]] = defaultdict(list)
    for fact in facts:
        if fact.reason is not None:
            by_reason[fact.reason].append(fact)
    reasons = [
        ReasonFacts(reason, own[0].title or "", len(own), sum(f.bytes_saved for f in own))
        for reason, own in by_reason.items()
    ]
    return tuple(sorted(reasons, key=lambda reason: -reason.bytes_saved))


def _refusals(
    facts: list[PairFacts], reason_of: Callable[[PairFacts], str | None]
) -> tuple[Refusals, ...]:
    alike: dict[tuple[object, ...], list[PairFacts]] = defaultdict(list)
    for fact in facts:
        reason = reason_of(fact)
        if reason is not None:
            ends = [(end.opcode, end.shape, end.source) for end in (fact.producer, fact.consumer)]
            alike[(reason, *ends)].append(fact)
    refusals = [
        Refusals(
            max(own, key=lambda fact: fact.bytes_saved),
            len(own),
            sum(fact.bytes_saved for fact in own),
        )
        for own in alike.values()
    ]
    return tuple(sorted(refusals, key=lambda refusal: -refusal.bytes_saved))


def _read(read: Callable[[], Content | None], notes: list[str]) -> Content | None:
    """A side file, or a note that it cannot be read."""
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
    """Numbers the stages from ``before`` to ``final``.

    Returns those after fusion passes, the final one last, and the one that the recorded pass worked
    on. A stage that cannot be read is left out and noted, unless it is the final one.
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
    """The stage that the recorded pass worked on, ``before`` where none shows it."""
    recorded = _RECORDED_PASS.get(module.backend or "", ())
    for run in _read(lambda: find_runs(module), []) or ():
        if run.pass_name in recorded:
            return run.before
    for earlier, stage in pairwise((before, *following)):
        if stage.name.after in recorded:
            return earlier
    return before


@dataclass(frozen=True, slots=True)
class _Why:
    """The reason of a pair, who gives it, and what the replay says where that is another one."""

    reason: Reason
    evidence: str | None
    otherwise: Reason | None = None


class _Reasons:
    """Why pairs were not fused, by the compiler's record and by a replay of its rules.

    ``base`` is the stage that the recorded pass worked on.
    """

    def __init__(
        self, recorded: Evidence | None, replayed: Replayed | None, base: NumberedModule
    ) -> None:
        self._recorded = recorded
        self._replayed = replayed
        self._carriers = Carriers(base)
        # What is said of the steps of a value that all its readers share.
        self._said: dict[Uses, _Said] = {}
        self._asked: dict[Hashable, _Answer] = {}

    def _ask(self, pair: Pair) -> _Answer:
        key = pair.path, pair.chain, pair.readers  # those of one value often have the same readers
        known = self._asked.get(key)
        if known is not None:
            return known
        uses, steps = self._carriers.find(pair)
        is_found = bool(uses.passed_on or steps)
        if not is_found:
            steps = [Step(0, pair.producer.name, pair.consumer.name)]
        shared = self._said.get(uses)
        if shared is None:
            shared = self._said[uses] = _Said()
            for step in uses.passed_on:
                shared.add(step, self._recorded, self._replayed)
        own = _Said()
        for step in steps:
            own.add(step, self._recorded, self._replayed)
        both = (shared, own)
        recorded = min((s.recorded for s in both if s.recorded), key=_place, default=None)
        replayed = min((s.decided for s in both if s.decided), key=_place, default=None)
        end = replayed[0] if replayed else inf
        if replayed is None:
            replayed = max((s.undecided for s in both if s.undecided), key=_place, default=None)
        also = shared.rules_until(end) | own.rules_until(end)
        answer = recorded[1] if recorded else None, replayed[1] if replayed else None, also
        if is_found:
            self._asked[key] = answer
        return answer

    def find(self, pair: Pair) -> _Why:
        recorded, replayed, also = self._ask(pair)
        if replayed is not None and self._replayed is not None and replayed.rule in _AT_A_LIBRARY:
            library = self._replayed.reason(
                "dot-library-rewriter", pair.producer.name, pair.consumer.name
            )
            if library is not None and not library.is_guess:
                numbers = (*replayed.numbers, ("library", library.rule))
                replayed = replace(replayed, numbers=numbers)
        if replayed is not None and self._replayed is not None and replayed.rule in _AT_A_DOT:
            # The pass before it, which makes fusions of dots, is the one that could have fused it.
            earlier = self._replayed.reason_around_dot(pair.producer.name, pair.consumer.name)
            if earlier is not None and (recorded is None or not earlier.is_guess):
                numbers = (*earlier.numbers, (self._replayed.main_pass, replayed.rule))
                return _by_replay(replace(earlier, numbers=numbers))
        if recorded is None:
            return _by_replay(replayed) if replayed is not None else _Why(Reason(UNKNOWN, ""), None)
        if replayed is None:
            return _Why(recorded, "recorded")
        # Two rules can have one message: the replay knows which of them it was.
        if recorded.rule in (replayed.rule, rule_of(replayed.message)):
            return _Why(replace(replayed, message=recorded.message), "agree")
        # What is recorded is why another consumer was refused, as far as the replay can tell.
        if recorded.rule in also and not replayed.is_guess:
            return _by_replay(replayed)
        return _Why(recorded, "disagree", replayed)


def _by_replay(reason: Reason) -> _Why:
    return _Why(reason, "guess" if reason.is_guess else "re-evaluated")


class _Said:
    """What record and replay say of some steps, in their order.

    Of the recorded reasons the first one counts. Of the replayed ones the first one does that says
    more than that bitcasts stand between, or else the last one.
    """

    __slots__ = ("decided", "recorded", "rules", "undecided")

    def __init__(self) -> None:
        self.recorded: tuple[int, Reason] | None = None
        self.decided: tuple[int, Reason] | None = None
        self.undecided: tuple[int, Reason] | None = None
        # The rules by which the producers of all steps up to one were kept out of consumers.
        self.rules: list[tuple[int, frozenset[str]]] = []

    def add(self, step: Step, recorded: Evidence | None, replayed: Replayed | None) -> None:
        if recorded is not None and self.recorded is None:
            reason = recorded.reason(step.producer, step.consumer)
            if reason is not None:
                self.recorded = step.place, reason
        if replayed is not None and self.decided is None:
            reason = replayed.reason(replayed.main_pass, step.producer, step.consumer)
            if reason is not None and _is_of_bitcasts(reason):
                self.undecided = step.place, reason
            elif reason is not None:
                self.decided = step.place, reason
            known = self.rules[-1][1] if self.rules else frozenset()
            rules = replayed.rules_of(step.producer)
            if not rules <= known:
                self.rules.append((step.place, known | rules))

    def rules_until(self, place: float) -> frozenset[str]:
        return next((rules for at, rules in reversed(self.rules) if at <= place), frozenset())


def _place(found: tuple[int, Reason]) -> int:
    return found[0]


def _is_of_bitcasts(reason: Reason) -> bool:
    """Whether it says no more than that bitcasts stand between: what is behind them says more."""
    return reason.message == AllUsers.only_bitcasts


def _pair_facts(
    pair: Pair, runs: int, reasons: _Reasons | None, overruling: Mapping[str, str]
) -> PairFacts:
    """``overruling`` are passes that fuse what one before them refused, by stage."""
    if pair.outcome is Outcome.NOT_FUSED:
        why = _Why(Reason(UNKNOWN, ""), None) if reasons is None else reasons.find(pair)
        text = RULE_TEXTS.get(why.reason.rule)
        return PairFacts(
            producer=operation_of(pair.producer),
            consumer=operation_of(pair.consumer),
            computation=pair.producer.computation.name,
            outcome=pair.outcome,
            kernel=None,
            stage=None,
            reason=why.reason.rule,
            message=why.reason.message or None,
            evidence=why.evidence,
            bytes_saved=pair.bytes_between * runs,
            title=text.title if text else None,
            advice=advice_for(
                why.reason.rule,
                tuple(map(_boundary, (pair.producer, pair.consumer))),
                shared=pair.producer.user_count > 1,
            ),
            numbers=why.reason.numbers,
            otherwise=why.otherwise.rule if why.otherwise else None,
            cost=cost_facts(why.reason.cost, pair.producer.name, pair.consumer.name)
            if why.reason.cost is not None
            else None,
        )
    return PairFacts(
        producer=operation_of(pair.producer),
        consumer=operation_of(pair.consumer),
        computation=pair.producer.computation.name,
        outcome=pair.outcome,
        kernel=pair.kernel.name if pair.kernel else None,
        stage=pair.stage,
        reason=None,
        message=None,
        evidence=None,
        bytes_saved=0 if pair.outcome is Outcome.GONE else pair.bytes_between * runs,
        overruled=_overruled(pair, reasons, overruling.get(pair.stage or "")),
    )


def _overruled(pair: Pair, reasons: _Reasons | None, by: str | None) -> Overruled | None:
    if reasons is None or by is None:
        return None
    why = reasons.find(pair)
    if why.reason.rule == UNKNOWN:
        return None
    text = RULE_TEXTS.get(why.reason.rule)
    return Overruled(
        reason=why.reason.rule,
        message=why.reason.message or None,
        evidence=why.evidence,
        by=by,
        title=text.title if text else None,
        numbers=why.reason.numbers,
    )


def _boundary(instruction: Instruction) -> tuple[str, str]:
    """Opcode, and what a custom call calls."""
    return instruction.opcode, instruction.attributes.get("custom_call_target", "").strip('"')


def operation_of(instruction: Instruction) -> Operation:
    metadata = instruction.metadata
    place = user_line(instruction.stack)
    return Operation(
        instruction.name,
        instruction.opcode,
        _shape_text(instruction.shape),
        metadata.get("op_name"),
        str(place) if place else None,
    )


def _shape_text(shape: Shape) -> str:
    """Each of thousands of pairs may read the same tuple of thousands of elements."""
    if len(shape.elements) <= _MOST_ELEMENTS:
        return str(shape)
    shown = ", ".join(str(element) for element in shape.elements[:_MOST_ELEMENTS])
    return f"({shown}, … {len(shape.elements) - _MOST_ELEMENTS:,} more)"


_NOT_THE_USERS = ("site-packages/", "dist-packages/", "jax/_src/", "/lib/python", "<frozen")


def user_line(stack: tuple[SourceLocation, ...]) -> SourceLocation | None:
    """The innermost line of the user's own code; any line where all is in libraries."""
    for place in stack:
        if not any(part in place.file for part in _NOT_THE_USERS):
            return place
    return stack[0] if stack else None


def _kernel_facts(kernel: Kernel) -> KernelFacts:
    place = user_line(kernel.instruction.stack)
    return KernelFacts(
        name=kernel.name,
        kind=kernel.kind,
        emitter=kernel.emitter,
        computation=kernel.computation,
        members=kernel.operations,
        bytes_read=kernel.bytes_read,
        bytes_written=kernel.bytes_written,
        runs=kernel.runs,
        runs_known=kernel.runs_known,
        source=str(place) if place else None,
        op_name=kernel.instruction.op_name,
    )


def _selected(pair: Pair, fact: PairFacts, wanted: Selection) -> bool:
    ends = (pair.producer, pair.consumer)
    return (
        (wanted.computation is None or fnmatchcase(fact.computation, wanted.computation))
        and (wanted.producer is None or _matches(pair.producer, wanted.producer))
        and (wanted.consumer is None or _matches(pair.consumer, wanted.consumer))
        and (wanted.opcode is None or wanted.opcode in (end.opcode for end in ends))
        and (
            wanted.reason is None
            or wanted.reason == fact.reason
            or (fact.overruled is not None and wanted.reason == fact.overruled.reason)
        )
        and (wanted.source is None or any(_comes_from(end, wanted.source) for end in ends))
    )


def _matches(instruction: Instruction, pattern: str) -> bool:
    pattern = pattern.lstrip("%")
    return fnmatchcase(instruction.name, pattern) or fnmatchcase(instruction.opcode, pattern)


def _comes_from(instruction: Instruction, source: str) -> bool:
    """``source`` is ``FILE`` or ``FILE:LINE``; the file may be the end of the path."""
    file, _, line = source.rpartition(":")
    if not line.isdecimal():
        file, line = source, ""
    wanted = PurePath(file).parts
    return any(
        PurePath(place.file).parts[-len(wanted) :] == wanted
        and (not line or int(line) == place.line)
        for place in instruction.stack
    )
