"""The reasons for a pair from a replay of the compiler's rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.graph.comparison import is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.plan import Followed, FusionPlan, PassRun
from fusionscope.progress import Progress, about, silent
from fusionscope.reasons.evidence import Evidence, Reason
from fusionscope.reasons.producer_steps import UseStep
from fusionscope.rules.messages import PASS_OFF
from fusionscope.system.memory import working_memory
from fusionscope.verify.agreement import RulesUsed
from fusionscope.verify.rules_used import replay_one, sum_up
from fusionscope.versions.choice import ChosenCompiler, choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

if TYPE_CHECKING:
    from fusionscope.dump.device import Device

# If this pass forms no fusion around a dot, the neighbours that it would have fused stay out.
_AROUND_DOTS = "triton-gemm-rewriter"


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions of one pass, or of several that count as one. ``followed`` are the steps of
    the records that were followed.
    """

    evidence: Evidence
    passes: tuple[str, ...]
    followed: tuple[Followed, ...] = ()

    @classmethod
    def by(cls, plans: Sequence[FusionPlan]) -> Decided:
        evidence = Evidence()
        for plan in plans:
            evidence.add_plan(plan)
        followed = tuple(plan.followed for plan in plans if plan.followed is not None)
        return cls(evidence, tuple(plan.pass_name for plan in plans), followed)

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each record with steps that rules or stages contradict."""
        return tuple(
            f"{record.differing:,} of {record.steps:,} recorded steps of {', '.join(self.passes)} "
            "contradict the rules or the next stage: there, the reasons of the record count"
            for record in self.followed
            if record.differing
        )


class ReplayedReasons:
    """The reasons of replayed passes, by the names that instructions had before each.

    ``main_pass`` is the one that decides about most pairs. The decisions of a pass that continues
    with the graph of the pass before are added to its own. ``rules`` are those that were replayed,
    None if no pass ran. ``notes`` has a line for each record that was followed in part only.
    """

    def __init__(
        self, decided: Mapping[str, Decided], main_pass: str, rules: RulesUsed | None = None
    ) -> None:
        self.main_pass = main_pass
        self.rules = rules
        self.notes = tuple(note for decision in decided.values() for note in decision.notes)
        self._evidence = {name: decision.evidence for name, decision in decided.items()}
        # If several passes count as one, one guess makes all of them guesses.
        guessed = rules.guessed if rules is not None else ()
        self._guessed = {
            name
            for name, decision in decided.items()
            if not set(decision.passes).isdisjoint(guessed)
        }

    @classmethod
    def of_plans(
        cls,
        plans: Mapping[str, Sequence[FusionPlan]],
        main_pass: str,
        rules: RulesUsed | None = None,
    ) -> ReplayedReasons:
        """Return the reasons of ``plans``, by the pass that each is a part of."""
        return cls({name: Decided.by(chain) for name, chain in plans.items()}, main_pass, rules)

    def reason(self, pass_name: str, producer: str, consumer: str) -> Reason | None:
        evidence = self._evidence.get(pass_name)
        reason = evidence.reason(producer, consumer) if evidence is not None else None
        return self._marked(pass_name, reason)

    def earlier_reason(self, steps: Iterable[UseStep], end: str | None) -> Reason | None:
        """Return why a pass before the main one did not fuse one of ``steps``, names before that
        pass.

        ``end`` is the end of the pair that such a pass gave a kernel, None if it is neither.
        """
        steps = tuple(steps)
        for name, evidence in self._evidence.items():
            if name == self.main_pass:
                continue
            # If the pass considered the consumer itself and a fusion that contains it, the first
            # decision says more.
            reasons = itertools.chain(
                (evidence.direct_reason(step.producer, step.consumer) for step in steps),
                (evidence.reason(step.producer, step.consumer) for step in steps),
            )
            reason = self._marked(name, next(filter(None, reasons), None))
            if reason is None and end is not None and name == _AROUND_DOTS:
                reason = self.reason(name, end, end)
            if reason is not None:
                return replace(reason, pass_name=name)
        return None

    def refusals_of(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the passes before the main one that formed no fusion around ``name``, with the
        rules.
        """
        named_reasons = (
            (pass_name, self.reason(pass_name, name, name))
            for pass_name in self._evidence
            if pass_name != self.main_pass
        )
        return tuple(
            (pass_name, reason.rule) for pass_name, reason in named_reasons if reason is not None
        )

    def rules_of(self, producer: str) -> frozenset[str]:
        """Return the rules by which the main pass refused any of the producer's consumers."""
        evidence = self._evidence.get(self.main_pass)
        return evidence.rules_of(producer) if evidence is not None else frozenset()

    def _marked(self, pass_name: str, reason: Reason | None) -> Reason | None:
        if reason is None or pass_name not in self._guessed:
            return reason
        return replace(reason, is_guess=True)


class SwitchedOff(ReplayedReasons):
    """Return the reason of all pairs if a flag keeps the main pass from running."""

    def __init__(self, main_pass: str) -> None:
        super().__init__({}, main_pass)

    def reason(self, pass_name: str, producer: str, consumer: str) -> Reason | None:
        return Reason(PASS_OFF, "")


def find_rules(module: DumpedModule) -> RulesUsed | None:
    """Return the rules that a replay of ``module`` uses, and how far they agree with it.

    None if nothing is replayed. Raises ``UnusableInput``.
    """
    replayed = replay_passes(module)
    return replayed.rules if replayed is not None else None


def _replay_by_record(
    module: DumpedModule, run: PassRun, context: PassContext, choice: ChosenCompiler
) -> tuple[FusionPlan, bool] | None:
    """Return the replay of priority fusion that follows the compiler's record, and whether it has
    the kernels of the stage after it. None if there is no record, or other rules were asked for.

    What the record says is not computed: scores take most of the time of a replay, and their order
    depends on that of users and on ids, which texts do not show.
    """
    record = module.priority_fusion
    gpu = context.gpu
    if run.pass_name != PRIORITY_FUSION or record is None or gpu is None or choice.is_requested:
        return None
    from fusionscope.passes.gpu.priority_fusion.record import followed_record

    before = module.read(run.before)
    after = before if run.after is None else module.read(run.after)
    gpu = replace(gpu, followed=followed_record(record.steps, before, after))
    plan = replay(run.pass_name, before, replace(context, gpu=gpu), choice.compiler)
    return plan, is_same(plan.graph, after)


@dataclass(frozen=True, slots=True)
class _Input:
    """What the result of runs depends on. ``texts`` are the identities of the modules before and
    after each run, ``record`` that of the compiler's record.
    """

    passes: tuple[str, ...]
    texts: tuple[tuple[int, int | None], ...]
    record: int | None
    context: PassContext
    chosen: ChosenCompiler


class SharedReplays:
    """What was replayed of dumps of one program, which have to be kept as long as this: the runs
    that they have in common are replayed once.
    """

    def __init__(self) -> None:
        self._known: list[tuple[_Input, Decided]] = []

    def find(
        self,
        module: DumpedModule,
        runs: Sequence[PassRun],
        context: PassContext,
        choice: ChosenCompiler,
        replay: Callable[[], tuple[Decided, list[bool]]],
    ) -> tuple[Decided, list[bool]]:
        """Return the decisions of ``runs``, and whether each run agrees with the dump: what
        ``replay`` returns, unless another dump has the same runs.
        """
        replay_input = _Input(
            tuple(run.pass_name for run in runs),
            tuple(
                (id(module.read(run.before)), id(module.read(run.after)) if run.after else None)
                for run in runs
            ),
            id(module.priority_fusion) if context.gpu is not None else None,
            context,
            choice,
        )
        for earlier_input, decided in self._known:
            if earlier_input == replay_input:
                return decided, [True] * len(runs)
        decided, agrees = replay()
        if all(agrees):  # otherwise no text shows what else the decisions depend on
            self._known.append((replay_input, decided))
        return decided, agrees


@working_memory()
def replay_passes(
    module: DumpedModule,
    compiler: Compiler | None = None,
    device: Device | None = None,
    *,
    shared: SharedReplays | None = None,
    progress: Progress = silent,
) -> ReplayedReasons | None:
    """Replay the passes that decide about pairs; None if they cannot be replayed.

    ``device`` is the GPU to assume, None for the dump's own. ``shared`` are runs of other dumps of
    the same program. Raises ``UnusableInput``.
    """
    if module.backend not in ("cpu", "gpu"):
        return None
    choice = choose_compiler(module, compiler)
    context = read_context(module, device)
    compiler_of_dump = choose_compiler(module).compiler
    main = compiler_of_dump.main_pass
    # In the order of a stack: the last pass that looked at a pair comes last.
    chain = next((chain for chain in compiler_of_dump.chains if main in chain), (main,))
    in_chain = [name for name in compiler_of_dump.deciding if name in chain]
    if len(in_chain) == 1 and not module.lets_run(main):
        return SwitchedOff(main)
    requested = {fusion_pass.name for fusion_pass in choice.compiler.passes}
    deciding = requested.intersection(compiler_of_dump.deciding)
    runs = [run for run in find_runs(module) if run.pass_name in deciding]
    chained = in_chain if len(in_chain) > 1 else ()
    shared = shared or SharedReplays()
    decided: dict[str, Decided] = {}
    agreements: dict[int, tuple[str, bool]] = {}
    for numbers in _grouped(runs, chained):
        group = [runs[number] for number in numbers]
        reporters = [about(f"pass {number + 1} of {len(runs)}", progress) for number in numbers]
        contexts = [replace(context, progress=reporter) for reporter in reporters]
        is_chained = group[0].pass_name in chained
        replay_all = partial(_replay_group, module, group, contexts, choice, is_chained=is_chained)
        decided_by_group, agrees = shared.find(module, group, context, choice, replay_all)
        decided[main if is_chained else group[0].pass_name] = decided_by_group
        for number, run, reporter in zip(numbers, group, agrees, strict=True):
            agreements[number] = run.pass_name, reporter
    if not decided:
        return None
    in_order = [agreements[number] for number in sorted(agreements)]
    return ReplayedReasons(decided, main, sum_up(choice, in_order))


def _grouped(runs: Sequence[PassRun], chained: Collection[str]) -> list[list[int]]:
    """Return the positions of ``runs``, those of passes in ``chained`` together."""
    groups: dict[int | None, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(None if run.pass_name in chained else number, []).append(number)
    return list(groups.values())


def _replay_group(
    module: DumpedModule,
    group: Sequence[PassRun],
    contexts: Sequence[PassContext],
    choice: ChosenCompiler,
    *,
    is_chained: bool,
) -> tuple[Decided, list[bool]]:
    """Replay runs. If they are chained, each continues with the graph of the one before."""
    plans: list[FusionPlan] = []
    agreements: list[bool] = []
    graph = MutableModule(module.read(group[0].before)) if is_chained else None
    for run, context in zip(group, contexts, strict=True):
        by_record = _replay_by_record(module, run, context, choice)
        plan, agrees = by_record or replay_one(module, run, context, choice.compiler, graph)
        plans.append(plan)
        agreements.append(agrees)
    decided = Decided.by(plans)
    for graph in {plan.graph for plan in plans}:
        graph.dissolve()
    return decided, agreements
