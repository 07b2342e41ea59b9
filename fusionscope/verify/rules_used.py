"""Selects the rules of a replay, and checks whether one run of a pass agrees with the dump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusionscope.dump import DumpedModule
from fusionscope.dump.agreement import Agreement
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.graph.comparison import is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.choice import ChosenCompiler, find_rewriters
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.runs import replay


def sum_up(choice: ChosenCompiler, plans: Sequence[tuple[str, bool]]) -> RulesUsed:
    """Return the summary. ``plans`` are passes, and whether the plan of each run agrees."""
    guessed = (name for name, agrees in plans if not (choice.are_checked and agrees))
    return RulesUsed(
        name=choice.name,
        version=choice.version,
        shown_by=choice.shown_by or None,
        are_checked=choice.are_checked,
        plans=Agreement(len(plans), sum(agrees for _, agrees in plans)),
        guessed=tuple(dict.fromkeys(guessed)),
    )


def replay_one(
    module: DumpedModule,
    run: PassRun,
    context: PassContext,
    compiler: Compiler,
    graph: MutableModule | None = None,
) -> tuple[FusionPlan, bool]:
    """Return the replay of one run of a pass, on ``graph`` if given, and whether it has the kernels
    of the stage after it.

    The order of users, for which all earlier stages have to be read, is reconstructed only if the
    plan does not agree without it. Raises ``UnusableInput``.
    """
    before = module.read(run.before)
    after = before if run.after is None else module.read(run.after)
    plan = replay(run.pass_name, before, context, compiler, graph)
    if is_same(plan.graph, after):
        return plan, True
    from fusionscope.user_order.user_history import arrange, find_user_order  # few plans need it

    context = with_ages(context, module, run)
    users = arrange(before, find_user_order(module, run.before, find_rewriters(module)))
    again = replay(run.pass_name, before, context, compiler, users)
    return plan if graph is not None else again, is_same(again.graph, after)


def with_ages(context: PassContext, module: DumpedModule, run: PassRun) -> PassContext:
    """Return the context with the creation order of instructions, which breaks ties."""
    if run.pass_name != PRIORITY_FUSION or context.gpu is None:
        return context
    from fusionscope.user_order.user_history import find_creation_order

    ids = context.gpu.ids or find_creation_order(module, run.before, find_rewriters(module))
    return replace(context, gpu=replace(context.gpu, ids=ids))
