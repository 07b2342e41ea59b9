"""Measures how far the replay of a dump agrees with the compiler."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from typing import NamedTuple

from msgspec import Struct, structs

from fusionscope.dump import Dump, DumpedModule, NewFacts, Stage
from fusionscope.dump.agreement import Agreement, total
from fusionscope.dump.device import Device
from fusionscope.dump.fusion_explorer import Kind, RecordedDecision, with_fused
from fusionscope.dump.fusion_passes import PRIORITY_FUSION, KnownPass, Record
from fusionscope.dump.priority_fusion import PriorityFusionRecord
from fusionscope.errors import UnusableInput
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.graph.comparison import (
    Comparison,
    Divergence,
    compare,
)
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.outcomes import count_pairs, outcomes_after
from fusionscope.hlo import Module
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.priority_fusion.record import (
    PriorityComparison,
    compare_with_record,
    recorded_order,
    steps_within,
)
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.progress import Progress, about, silent
from fusionscope.system.memory import working_memory
from fusionscope.system.workers import in_order
from fusionscope.user_order.infer_user_order import UserOrder
from fusionscope.user_order.user_history import (
    UserHistory,
    arrange,
    users_by_name,
)
from fusionscope.verify.agreement import RulesUsed
from fusionscope.verify.inferred import InferredVerification, verify_inferred
from fusionscope.verify.rules_used import sum_up
from fusionscope.versions.choice import choose_compiler, find_rewriters
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

_FUSED = "fused"
_UNNAMED = re.compile(r"fusion(\.\d+)?")
_REFUSALS = frozenset(
    {Kind.REFUSED, Kind.INELIGIBLE, Kind.REFUSED_SIBLINGS, Kind.REFUSED_MULTI_OUTPUT}
)
# The text that the pass appends to its reason if it cannot fuse a pair with several outputs either.
_NO_MULTI_OUTPUT = " ; multi-output fusion not supported by this pass"


_INFERRED_ORDER = (
    "{name}: the compiler breaks ties of priority fusion by ids, which only protos have; their "
    "order was inferred, and equal priorities may have come in another (--xla_dump_hlo_as_proto)"
)


class Disagreement(Struct, frozen=True, rename={"ours": "replay", "theirs": "compiler"}):
    """A decision on which replay and record differ.

    ours: what the replay decided there; empty if nothing
    theirs: what the compiler recorded there; empty if nothing
    """

    ours: str
    theirs: str


class PassVerification(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "pass_name": "pass",
        "book": "rules",
        "is_identical": "identical",
        "has_same_kernels": "same_kernels",
    },
):
    """The comparison of one run of a pass.

    Each comes with the number on which the two agree; decisions agree if both have them, in the
    same order.

    pass_name: the pass, as files name it
    book: the book of rules that was gone by
    before: label of the stage that the pass worked on
    after: label of the stage after it; null if it changed nothing
    is_identical: whether the replay made the module that the compiler made
    has_same_kernels: whether it made the same kernels, of the same operations; only the order of
        their outputs and operands may differ
    divergence: the first difference; null if there is none
    pairs: producers and consumers before the pass, and how many have the same outcome after it
    decisions: decisions that the record or, if it has more, the replay has, and how many both have
        in the same order; 0 without a record
    disagreement: the first decision that only one of the two has; null if there is none
    steps: the kinds of decisions, if the record is that of the GPU's priority fusion; null
        otherwise
    """

    pass_name: str
    book: str
    before: str
    after: str | None
    is_identical: bool
    has_same_kernels: bool
    divergence: Divergence | None
    pairs: Agreement
    decisions: Agreement
    disagreement: Disagreement | None
    steps: PriorityComparison | None = None


class ModuleVerification(Struct, frozen=True):
    """The comparison of one module. ``notes`` say what the dump lacks where a plan differs.

    number: its number in the dump
    name: name of the module
    folder: where in the dump it lies; ``.`` for the dump itself
    passes: the runs of passes that were replayed, in order
    rules: the rules that were replayed, as in ``explain``
    """

    internal = ("notes",)

    number: int
    name: str
    folder: str
    passes: tuple[PassVerification, ...]
    rules: RulesUsed
    notes: tuple[str, ...] = ()


class Verification(Struct, frozen=True, tag_field="schema", tag="fusionscope.verify/1"):
    """The comparison of a dump. ``failures`` has one line for each module, pass or record that
    could not be used. ``notes`` are about operations that no rule covers, and what the dump lacks
    where a plan differs.

    path: the dump, as it was named on the command line
    modules: the modules that were replayed
    inferred: the modules for TPUs, of which no pass can be replayed
    agreement: per cent of all plans, pairs and recorded decisions on which replay and compiler
        agree; null if no pass was replayed
    identical: whether passes were replayed and every plan is the compiler's own
    problems: one line for each module, pass or record that could not be used; one on operations
        that no rule covers
    """

    internal = ("failures", "notes")
    computed = ("agreement", "identical", "problems")

    path: str
    modules: tuple[ModuleVerification, ...]
    inferred: tuple[InferredVerification, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return (*self.failures, *self.notes)

    @property
    def passes(self) -> tuple[PassVerification, ...]:
        return tuple(fusion_pass for module in self.modules for fusion_pass in module.passes)

    @property
    def agreement(self) -> float | None:
        """The per cent of all plans, pairs and recorded decisions on which replay and compiler
        agree; None if no pass was replayed.

        Plans count too: another fusion kind or order of operands separates no pair.
        """
        if not self.passes:
            return None
        plans = [Agreement(1, run.is_identical) for run in self.passes]
        all_compared = total(
            (*plans, *(part for run in self.passes for part in (run.pairs, run.decisions)))
        )
        return 100.0 * all_compared.agreeing / all_compared.compared

    @property
    def identical(self) -> bool:
        """Whether passes were replayed, and all plans are the compiler's own."""
        return bool(self.passes) and all(fusion_pass.is_identical for fusion_pass in self.passes)


def verify(
    dump: Dump,
    modules: Iterable[DumpedModule],
    compiler: Compiler | None = None,
    device: Device | None = None,
    *,
    jobs: int = 1,
    progress: Progress = silent,
) -> Verification:
    """Replay every fusion pass of ``modules``, which are of ``dump``, from the stage before it. Of
    modules for TPUs, count the pairs about which the inferred rules are right.

    ``compiler`` has the passes and rules, by default those of the version that made the dump.
    ``device`` is the GPU, by default the dump's own. Up to ``jobs`` processes work at once. Raises
    ``UnusableInput`` if nothing can be replayed.
    """
    verified: list[ModuleVerification] = []
    inferred: list[InferredVerification] = []
    problems: list[str] = []
    work = partial(_verify_module, dump, compiler, device)
    places = [dump.modules.index(module) for module in modules]
    name = partial(_name_of, dump)
    for outcome in in_order(work, places, name, jobs=jobs, progress=progress):
        if isinstance(outcome, UnusableInput):
            problems.append(str(outcome))
            continue
        verification, own_problems, learned = outcome
        dump.learn(learned)
        problems += own_problems
        if isinstance(verification, InferredVerification):
            inferred.append(verification)
        elif verification is not None:
            verified.append(verification)
    problems += dump.unread(problems)
    if not verified and not inferred:
        raise UnusableInput(
            f"no fusion pass can be replayed; {problems[0]}"
            if problems
            else "no fusion pass can be replayed",
            file=str(dump.path),
        )
    return Verification(
        str(dump.path),
        tuple(verified),
        tuple(inferred),
        tuple(dict.fromkeys(problems)),
        (*dump.notes, *(note for module in verified for note in module.notes)),
    )


def _name_of(dump: Dump, place: int) -> str:
    return dump.modules[place].name


def _verify_module(
    dump: Dump, compiler: Compiler | None, device: Device | None, place: int, progress: Progress
) -> tuple[ModuleVerification | InferredVerification | None, list[str], NewFacts]:
    """Return the comparison of a module, None if there is none, with the problems and what reading
    it has shown.
    """
    module = dump.modules[place]
    problems: list[str] = []
    verification: ModuleVerification | InferredVerification | None = None
    folder = str(module.directory.relative_to(dump.path)) if dump.path.is_dir() else "."
    try:
        if module.backend == "tpu":
            inferred = verify_inferred(module, folder, problems, progress)
            return inferred, problems, dump.learned()
        choice = choose_compiler(module, compiler)
        passes = tuple(_verify_passes(module, choice.compiler, device, problems, progress))
        if passes:
            rules = sum_up(
                choice,
                [(fusion_pass.pass_name, fusion_pass.has_same_kernels) for fusion_pass in passes],
            )
            verification = ModuleVerification(
                module.number, module.name, folder, passes, rules, order_notes(module, passes)
            )
    except UnusableInput as error:
        problems.append(str(error))
    return verification, problems, dump.learned()


def order_notes(module: DumpedModule, passes: Sequence[PassVerification]) -> tuple[str, ...]:
    """Return that equal priorities come in an inferred order, where a plan may differ for that."""
    differs = any(
        verification.pass_name == PRIORITY_FUSION and not verification.is_identical
        for verification in passes
    )
    if not differs or any(stage.proto is not None for stage in module.stages):
        return ()
    return (_INFERRED_ORDER.format(name=module.name),)


class _Told(NamedTuple):
    """The outcome of a pair: both names, and fused or the compiler's reason."""

    producer: str
    consumer: str
    what: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}: {self.what}"


def _verify_passes(
    module: DumpedModule,
    compiler: Compiler,
    device: Device | None,
    problems: list[str],
    progress: Progress,
) -> Iterator[PassVerification]:
    """Yield the comparison of each run. Unreadable parts are added to ``problems``, and the rest is
    still compared.

    Raises ``UnusableInput`` if there is nothing to replay.
    """
    runs = find_runs(module)
    if not runs:
        backend = module.backend or "an unknown backend"
        raise UnusableInput(
            f"no stage of {module.name} shows a fusion pass whose rules are known (backend "
            f"{backend}; those of cpu and gpu are), expected a dump with --xla_dump_hlo_pass_re=.*",
            file=str(module.stages[0].file),
        )
    context = read_context(module, device)
    behind: _Behind | None = None
    history = UserHistory(module, find_rewriters(module))
    rounds: Counter[str] = Counter()  # of a pipeline that repeats until nothing changes
    for number, run in enumerate(runs, 1):
        own_progress = about(f"pass {number} of {len(runs)}", progress)
        own_progress("reading stages")
        theirs: list[list[_Told]] = []
        record: PriorityFusionRecord | None = None
        try:
            known_pass = compiler.find(run.pass_name).known
        except UnusableInput as error:
            problems.append(str(error))
            continue
        try:
            theirs = _recorded(module, compiler, known_pass, rounds[run.pass_name])
            if run.pass_name == PRIORITY_FUSION:
                record = module.priority_fusion
        except UnusableInput as error:
            problems.append(str(error))
        rounds[run.pass_name] += 1
        last, behind = behind, None
        try:
            graph = _graph_before(module, run, last, history)
            context = replace(_with_ages(context, run, history), progress=own_progress)
            compared, behind = _verify_run(module, run, context, compiler, graph, theirs, record)
            yield compared
        except UnusableInput as error:
            problems.append(str(error))
    if behind is not None:
        behind.graph.dissolve()


class _Behind(NamedTuple):
    """A stage whose users are known in order, with its module in the order of the text."""

    stage: Stage
    users: UserOrder
    graph: MutableModule


def _graph_before(
    module: DumpedModule, run: PassRun, behind: _Behind | None, history: UserHistory
) -> MutableModule:
    """Return the module before ``run`` with its users in order. ``behind`` is used up. It is later
    only where stages of two runs are mixed.
    """
    try:
        if behind is not None:
            history.set_users(behind.stage, behind.users)
        history.go_to(run.before)
    except UnusableInput as problem:
        module.note(problem)
        history.forget()
    if behind is not None and behind.stage == run.before:
        return arrange(behind.graph, behind.users)
    if behind is not None:
        behind.graph.dissolve()
    return arrange(module.read(run.before), history.users)


def _with_ages(context: PassContext, run: PassRun, history: UserHistory) -> PassContext:
    """Return the context with the order in which the instructions before priority fusion were
    created, by which it breaks ties.
    """
    if run.pass_name != PRIORITY_FUSION or context.gpu is None or context.gpu.ids:
        return context
    return replace(context, gpu=replace(context.gpu, ids=history.ages))


@working_memory()
def _verify_run(
    module: DumpedModule,
    run: PassRun,
    context: PassContext,
    compiler: Compiler,
    graph: MutableModule,
    theirs: list[list[_Told]],
    record: PriorityFusionRecord | None,
) -> tuple[PassVerification, _Behind]:
    """Return the comparison of one run on ``graph``, and the module after it."""
    before = module.read(run.before)
    after = before if run.after is None else module.read(run.after)
    names = (
        {instruction: instruction.name for instruction in graph.walk()}
        if record is not None
        else {}
    )
    triton, users = [name.name for name in names if is_generic_triton(name)], users_by_name(names)
    plan = replay(run.pass_name, before, context, compiler, graph)
    context.progress(f"comparing {run.pass_name}")
    after_graph = MutableModule(after)
    comparison = compare(plan.graph, after_graph)
    statements: list[list[_Told]] = []
    if theirs:
        by_computation = _told(plan, _record_of(compiler, compiler.find(run.pass_name).known))
        statements = _with_record(by_computation, theirs, module.read(module.last))
    compared = _compare(run, compiler, plan, comparison, before, after, statements, theirs)
    if record is not None:
        compared, followed = _with_steps(
            compared, plan, before, record, triton, context, compiler, users
        )
        if followed is not plan:
            plan.graph.dissolve()
            plan, comparison = followed, compare(followed.graph, after_graph)
    behind = _Behind(run.after or run.before, _users_after(plan, comparison), after_graph)
    plan.graph.dissolve()
    return compared, behind


def _users_after(plan: FusionPlan, comparison: Comparison) -> UserOrder:
    """Return the users in the compiler's module, by its names."""
    # The number of a fusion means nothing.
    names = {ours: name for name, ours in comparison.find_names().items()}
    renamed = {
        instruction: names[instruction.name]
        for instruction in plan.graph.walk()
        if instruction.name in names
    }
    return users_by_name(renamed)


def _compare(
    run: PassRun,
    compiler: Compiler,
    plan: FusionPlan,
    comparison: Comparison,
    before: Module,
    after: Module,
    statements: list[list[_Told]],
    theirs: list[list[_Told]],
) -> PassVerification:
    divergence = comparison.find_divergence()
    if divergence is None:
        count = count_pairs(before)
        pairs = Agreement(count, count)
    else:
        outcomes = [outcomes_after(before, module_after) for module_after in (plan.module, after)]
        pairs = Agreement(len(outcomes[0]), sum(map(operator.is_, *outcomes)))
    fusion_pass = compiler.find(run.pass_name)
    return PassVerification(
        pass_name=run.pass_name,
        book=fusion_pass.book.name,
        before=run.before.label,
        after=run.after.label if run.after else None,
        is_identical=divergence is None,
        divergence=divergence,
        has_same_kernels=divergence is None or comparison.has_same_kernels(),
        pairs=pairs,
        decisions=_compare_decisions(statements, theirs),
        disagreement=_first_disagreement(statements, theirs) if theirs else None,
    )


def _with_steps(
    compared: PassVerification,
    plan: FusionPlan,
    before: Module,
    record: PriorityFusionRecord,
    triton: Sequence[str],
    context: PassContext,
    compiler: Compiler,
    users: UserOrder,
) -> tuple[PassVerification, FusionPlan]:
    """Compare the steps of priority fusion. Return the result with the plan that was compared. If
    steps differ, some follow from the order of equal priorities, which no dump shows. The record is
    then followed in that order, and in nothing else.
    """
    recorded = steps_within(before, record.steps)
    steps = compare_with_record(plan.events, recorded, triton)
    if steps.first is not None and context.gpu is not None:
        gpu = replace(context.gpu, recorded=recorded_order(recorded))
        context = replace(context, gpu=gpu)
        plan = replay(plan.pass_name, before, context, compiler, arrange(before, users))
        steps = compare_with_record(plan.events, recorded, triton)
    kinds = (steps.native, steps.with_triton, steps.reasons, steps.fusions)
    compared = structs.replace(
        compared,
        decisions=total(kinds),
        disagreement=Disagreement(*steps.first) if steps.first is not None else None,
        steps=steps,
    )
    return compared, plan


class _Teller:
    """Names a fusion after the instruction it grew from. Its own number depends on the order of
    computations, which a dump does not show. Passes that only join fusions do not record what a new
    one grew from; their fusions are named by the order in which they are mentioned.
    """

    def __init__(self, record: Record | None) -> None:
        self._forms_fusions = record is Record.INSTRUCTION_FUSION
        self._names: dict[str, str] = {}

    def tell(self, producer: str, consumer: str, what: str, fusion: str | None = None) -> _Told:
        statement = _Told(self._name(producer), self._name(consumer), what)
        if self._forms_fusions and fusion is not None and fusion != consumer:
            self._names[fusion] = f"fusion of {statement.consumer}"
        return statement

    def _name(self, name: str) -> str:
        if not self._forms_fusions and _UNNAMED.fullmatch(name):
            return self._names.setdefault(name, f"new fusion {len(self._names) + 1}")
        return self._names.get(name, name)


def _told(plan: FusionPlan, record: Record | None) -> dict[str, list[_Told]]:
    """Return the decisions that the compiler would record, in its order, by computation."""
    tellers: dict[str, _Teller] = defaultdict(partial(_Teller, record))
    statements: dict[str, list[_Told]] = defaultdict(list)
    for decision in plan.decisions:
        if decision.is_recorded or decision.fusion is not None:
            what = _FUSED if decision.decision.allow else decision.decision.message
            if decision.fusion is None and record is Record.INSTRUCTION_FUSION:
                what += _NO_MULTI_OUTPUT
            is_about_all = decision.fusion is None and record is Record.FUSION_MERGER
            consumer = "" if is_about_all else decision.consumer
            if decision.fusion is not None and record is Record.MULTI_OUTPUT_FUSION:
                consumer = decision.fusion
            teller = tellers[decision.computation]
            statements[decision.computation].append(
                teller.tell(decision.producer, consumer, what, decision.fusion)
            )
    return statements


def _with_record(
    statements: Mapping[str, list[_Told]], theirs: list[list[_Told]], last: Module
) -> list[list[_Told]]:
    """Return the decisions in computations that have a record. It is written of the ``last``
    module, and so lacks computations that were removed before.
    """
    names = {computation.name for computation in last.computations}
    recorded = set(chain(*theirs))
    return [
        decisions
        for name, decisions in statements.items()
        if name in names or not recorded.isdisjoint(decisions)
    ]


def _record_of(compiler: Compiler, known_pass: KnownPass) -> Record | None:
    """Return the name of the pass in records, if its decisions are compared one by one."""
    return known_pass.record if known_pass.record in compiler.compared_records else None


def _recorded(
    module: DumpedModule, compiler: Compiler, known_pass: KnownPass, turn: int
) -> list[list[_Told]]:
    """Return the decisions of each record (one per computation), in order, of the run of the pass
    before which it ran ``turn`` times.
    """
    compared = _record_of(compiler, known_pass)
    if compared is None:
        return []
    order = [
        fusion_pass.known.record
        for fusion_pass in compiler.passes
        if fusion_pass.known.record is not None
    ]
    same = [
        fusion_pass.name for fusion_pass in compiler.passes if fusion_pass.known.record is compared
    ]
    statements_by_computation: list[list[_Told]] = []
    for record in module.fusion_explorer:
        rounds = _rounds(record.decisions, list(dict.fromkeys(order)))
        decisions = (
            [decision for decision in rounds[turn] if decision.pass_name == compared]
            if turn < len(rounds)
            else []
        )
        if len(same) > 1:  # two runs of one pass
            start = _start_of_second_run(decisions)
            decisions = decisions[:start] if known_pass.name == same[0] else decisions[start:]
        if statements := list(_read_record(decisions, compared)):
            statements_by_computation.append(statements)
    return statements_by_computation


def _rounds(
    decisions: Iterable[RecordedDecision], order: Sequence[str | None]
) -> list[list[RecordedDecision]]:
    """Return the decisions of each round of a pipeline that repeats until nothing changes. A new
    round begins where a pass comes before its predecessor in ``order``.
    """
    rounds: list[list[RecordedDecision]] = []
    last = len(order)
    for decision in decisions:
        place = order.index(decision.pass_name) if decision.pass_name in order else last
        if not rounds or place < last:
            rounds.append([])
        rounds[-1].append(decision)
        last = place
    return rounds


def _start_of_second_run(decisions: Sequence[RecordedDecision]) -> int:
    """Return the start of the decisions of the run that may duplicate. Only fused pairs identify
    the run; in a run that fuses nothing, each consumer and each of its operands comes up once.
    """
    runs = [place for place, decision in enumerate(decisions) if decision.may_duplicate]
    end = runs[0] if runs else len(decisions)
    start = max(
        (p for p, decision in enumerate(decisions) if decision.may_duplicate is False), default=-1
    )
    consumers = {decision.consumer for decision in decisions[: start + 1]}
    current = decisions[start].consumer if start >= 0 else None
    operands: set[str | None] = set()
    for place in range(start + 1, end):
        producer, consumer = decisions[place].producer, decisions[place].consumer
        if consumer != current:
            operands = set()
        if producer in operands or (consumer != current and consumer in consumers):
            return place
        consumers.add(consumer)
        operands.add(producer)
        current = consumer
    return end


def _read_record(decisions: Iterable[RecordedDecision], record: Record) -> Iterator[_Told]:
    teller = _Teller(record)
    for decision, made_of in with_fused(decisions):
        if made_of is not None:
            yield teller.tell(*made_of, _FUSED, decision.consumer)
        elif decision.kind in _REFUSALS and decision.producer:
            yield teller.tell(decision.producer, decision.consumer or "", decision.reason)


def _compare_decisions(ours: list[list[_Told]], theirs: list[list[_Told]]) -> Agreement:
    """Return how many decisions the longer of the two has, none if there is no record."""
    if not theirs:
        return Agreement(0, 0)
    compared = max(sum(map(len, ours)), sum(map(len, theirs)))
    return Agreement(compared, _count_agreeing(ours, theirs))


def _count_agreeing(ours: list[list[_Told]], theirs: list[list[_Told]]) -> int:
    """Return how many decisions both have in common, those of each record in our order."""
    places: dict[_Told, deque[int]] = defaultdict(deque)
    for place, statement in enumerate(chain(*ours)):
        places[statement].append(place)
    count = 0
    for record in theirs:
        # The lowest place at which an increasing sequence of each length can end.
        ends: list[int] = []
        for statement in record:
            if places[statement]:
                place = places[statement].popleft()
                length = bisect_left(ends, place)
                ends[length : length + 1] = [place]
        count += len(ends)
    return count


def _first_disagreement(ours: list[list[_Told]], theirs: list[list[_Told]]) -> Disagreement | None:
    """Return the first decision of a computation that only one of the two has there."""
    odd_ours = [statement for statement in ours if statement not in theirs]
    odd_theirs = [statement for statement in theirs if statement not in ours]
    nothing: list[_Told] = []
    for our_group, their_group in zip_longest(odd_ours, odd_theirs, fillvalue=nothing):
        for a, b in zip_longest(our_group, their_group):
            if a != b:
                return Disagreement(str(a or ""), str(b or ""))
    return None
