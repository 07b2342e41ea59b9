"""The reasons for a pair from a replay of the compiler's rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.explain.carriers import UseStep
from fusionscope.explain.evidence import Evidence, Reason
from fusionscope.graph.comparison import is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.progress import Progress, about, silent
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


class ReplayedReasons:
    """The reasons of replayed passes, by the names that instructions had before each.

    ``main_pass`` is the one that decides about most pairs. A plan of a pass that continues with the
    graph of the pass before is a part of the same plan. ``rules`` are those that were replayed,
    None if no pass ran.
    """

    def __init__(
        self,
        plans: Mapping[str, Sequence[FusionPlan]],
        main_pass: str,
        rules: RulesUsed | None = None,
    ) -> None:
        self.main_pass = main_pass
        self.rules = rules
        self._evidence: dict[str, Evidence] = {}
        for name, chain in plans.items():
            evidence = self._evidence[name] = Evidence()
            for plan in chain:
                evidence.add_plan(plan)
        # If several plans count as one, one guess makes all of them guesses.
        self._guessed = {
            name
            for name, chain in plans.items()
            if rules is not None and any(plan.pass_name in rules.guessed for plan in chain)
        }

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
            found = itertools.chain(
                (evidence.direct_reason(step.producer, step.consumer) for step in steps),
                (evidence.reason(step.producer, step.consumer) for step in steps),
            )
            reason = self._marked(name, next(filter(None, found), None))
            if reason is None and end is not None and name == _AROUND_DOTS:
                reason = self.reason(name, end, end)
            if reason is not None:
                return replace(reason, pass_name=name)
        return None

    def refusals_of(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the passes before the main one that formed no fusion around ``name``, with the
        rules.
        """
        found = (
            (each, self.reason(each, name, name))
            for each in self._evidence
            if each != self.main_pass
        )
        return tuple((each, reason.rule) for each, reason in found if reason is not None)

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
    module: DumpedModule, run: PassRun, context: PassContext, chosen: ChosenCompiler
) -> FusionPlan | None:
    """Return the replay of priority fusion with the scores that the compiler recorded, which take
    most of the time of a replay.

    None where there is none, or where record, rules and stages do not all agree.
    """
    record = module.priority_fusion
    gpu = context.gpu
    if run.pass_name != PRIORITY_FUSION or record is None or gpu is None or run.after is None:
        return None
    if gpu.gpu_model.has_heroless_triton or not chosen.are_checked:
        return None
    from fusionscope.passes.gpu.priority_fusion.record import recorded_scores
    from fusionscope.passes.gpu.priority_fusion.recorded_order import RecordDiffers

    gpu = replace(gpu, scores=recorded_scores(record.steps), has_record=False)
    context = replace(context, gpu=gpu)
    try:
        plan = replay(run.pass_name, module.read(run.before), context, chosen.compiler)
    except RecordDiffers:
        return None
    return plan if is_same(plan.graph, module.read(run.after)) else None


@working_memory()
def replay_passes(
    module: DumpedModule,
    compiler: Compiler | None = None,
    device: Device | None = None,
    *,
    progress: Progress = silent,
) -> ReplayedReasons | None:
    """Replay the passes that decide about pairs; None if they cannot be replayed.

    ``device`` is the GPU to assume, None for the dump's own. Raises ``UnusableInput``.
    """
    if module.backend not in ("cpu", "gpu"):
        return None
    chosen = choose_compiler(module, compiler)
    context = read_context(module, device)
    own = choose_compiler(module).compiler
    main = own.main_pass
    # In the order of a stack: the last pass that looked at a pair comes last.
    chain = next((each for each in own.chains if main in each), (main,))
    in_chain = [name for name in own.deciding if name in chain]
    if len(in_chain) == 1 and not module.lets_run(main):
        return SwitchedOff(main)
    plans: dict[str, list[FusionPlan]] = {}
    agreements: list[tuple[str, bool]] = []
    graph: MutableModule | None = None
    runs = [run for run in find_runs(module) if run.pass_name in own.deciding]
    for number, run in enumerate(runs, 1):
        context = replace(context, progress=about(f"pass {number} of {len(runs)}", progress))
        is_chained = len(in_chain) > 1 and run.pass_name in in_chain
        if is_chained:
            graph = graph or MutableModule(module.read(run.before))
        on = graph if is_chained else None
        plan = _replay_by_record(module, run, context, chosen)
        agrees = plan is not None
        if plan is None:
            plan, agrees = replay_one(module, run, context, chosen.compiler, on)
        agreements.append((run.pass_name, agrees))
        if is_chained:
            plans.setdefault(main, []).append(plan)
        else:
            plans[run.pass_name] = [plan]
    if not plans:
        return None
    replayed = ReplayedReasons(plans, main, sum_up(chosen, agreements))
    for graph in {plan.graph for chain in plans.values() for plan in chain}:
        graph.dissolve()
    return replayed
