"""Plans: which operations the compiler is to fuse.

A plan is the module after the fusion passes or, if the compiler decides on the rest, before them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import count_figures
from fusionscope.gpu.kinds import choose_kind
from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.cleanup import clean_up, remove_copies
from fusionscope.graph.fusing import unpack
from fusionscope.graph.mutable import MutableInstruction, MutableModule, to_module
from fusionscope.hlo import Module
from fusionscope.passes.context import Deadline
from fusionscope.passes.overrides import Allowed, Forbidden, PairPattern, set_apart
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.rerun.kernels import place_kernels
from fusionscope.rerun.legality import require_legal
from fusionscope.rerun.parallel_tasks import assign_tasks
from fusionscope.rerun.placeholders import put_placeholders, replace_placeholders
from fusionscope.rerun.requests import require_possible
from fusionscope.rules.changes import NO_CHANGES, Changes
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs
from fusionscope.what_if.changed_passes import ChangedPasses, Orders
from fusionscope.what_if.what_if import predict_final

# The GPU pipeline that fuses.
_GPU_PIPELINE = "fusion"
WRAPPER = "fusion-wrapper"
_COPYING = "copy-insertion"
SCHEDULED = "HLO_passes_after_scheduling"


class Rest(StrEnum):
    """Who decides on the operations that no change names."""

    RULES = "rules"  # the compiler's rules as replayed, with the changes
    XLA = "xla"  # the compiler itself
    OFF = "off"  # nobody: they are not fused


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan. ``before`` is the module before the first fusion pass, ``after`` the module that is
    wanted after the last one; if ``rest`` is the compiler's, ``after`` is the module that it starts
    from. ``words`` describe the plan, ``is_own`` marks the compiler's own. It results from
    ``changes`` and ``steps``, the replays of ``passes`` in their order. ``predicted`` are the
    figures of the final module as ``explain`` predicts them, or None if they cannot be predicted.
    """

    words: str
    before: Module
    after: Module
    rest: Rest = Rest.RULES
    changes: Changes = NO_CHANGES
    steps: tuple[FusionPlan, ...] = ()
    passes: ChangedPasses
    predicted: Figures | None = None
    is_own: bool = False


def own_plan(module: DumpedModule) -> Plan:
    """Return the compiler's own plan. Raises ``UnusableInput`` if the dump does not show it."""
    start, end = _ends(module)
    return Plan(
        words="the compiler's own plan",
        before=module.read(start),
        after=module.read(end),
        passes=ChangedPasses(module, NO_CHANGES, from_first=True),
        predicted=_own_figures(module),
        is_own=True,
    )


def _own_figures(module: DumpedModule) -> Figures | None:
    if module.final is None:
        return None
    return count_figures(module.read(module.final), module.backend, read_context(module).gpu)


def make_plan(
    module: DumpedModule,
    changes: Changes,
    remainder: Rest = Rest.RULES,
    *,
    orders: Orders | None = None,
    predicts: bool = True,
    deadline: Deadline | None = None,
) -> Plan:
    """Return the plan for a module under ``changes``, with predicted figures if ``predicts`` is
    set. Whoever makes many plans for a module passes the same dictionary as ``orders``, which keeps
    what they have in common.

    Raises ``UnusableInput`` if it cannot be replayed, does not do what ``changes`` ask for, or is
    not a program that a compiler accepts, and ``OutOfTime`` at the ``deadline``.
    """
    _, end = _ends(module)
    words = str(changes) or "the rules as they are"
    if remainder is not Rest.RULES:
        words = f"{changes}, and nothing else" if changes else "no fusion"
        if remainder is Rest.XLA:
            words = f"{changes or 'nothing'}, and the rest as the compiler decides"
    passes = ChangedPasses(module, changes, from_first=remainder is not Rest.RULES or not changes)
    for pattern, hint in passes.unmatched_patterns():
        raise UnusableInput(
            f"{module.name}: no pair before fusion matches {shorten(str(pattern))}",
            hint=hint or "`fusionscope explain DUMP --all` lists all pairs",
        )
    _require_early(module, passes, changes)
    before = module.read(passes.start)
    placed = MutableModule(before)
    members = [
        [passes.later_name(name.lstrip("%")) for name in kernel] for kernel in changes.kernels
    ]
    kernels = frozenset(place_kernels(placed, members, kind_of(module)))
    graph = MutableModule(to_module(placed)) if kernels else placed
    put_placeholders(
        graph, lambda instruction: instruction.name in kernels
    )  # no rule looks inside one
    ready = to_module(graph)
    passes.find_orders({} if orders is None else orders)
    steps = _replay(module, passes, ready, changes, remainder, deadline)
    graph = MutableModule(steps[-1].module if steps else ready)
    replace_placeholders(graph, placed)
    if remainder is Rest.XLA:
        _leave_single(graph)
        passes.names.set_origins(graph)
        set_apart(graph, changes.forbidden)
    else:
        if module.backend == "cpu":
            remove_copies(graph)
        clean_up(graph, module.backend)
    after = to_module(graph)
    predicted = None
    if predicts and remainder is Rest.RULES:
        prediction = predict_final(module, passes, after)
        predicted = (
            prediction[1].figures if prediction is not None and prediction[1].is_certain else None
        )
        if predicted is not None and prediction is not None and not prediction[1].is_time_certain:
            predicted = replace(predicted, time_us=None)
    if remainder is not Rest.XLA and module.backend == "cpu":
        assign_tasks(graph, threads_here())
        after = to_module(graph)
    plan = Plan(
        words=words,
        before=before,
        after=after,
        rest=remainder,
        changes=changes,
        steps=steps,
        passes=passes,
        predicted=predicted,
    )
    if remainder is not Rest.XLA:
        require_possible(module, plan)
    checked = None if _breaks_rules(passes.compiler, changes) else kernels
    require_legal(after, module.read(end), before, module.backend, checked)
    return plan


def _breaks_rules(compiler: Compiler, changes: Changes) -> bool:
    """Return whether a rule is changed without which kernels need not be legal."""
    ids = (*(id for id, _, _ in changes.thresholds), *changes.disabled)
    return any((rule := compiler.find_rule(id)) and rule.is_legality for id in ids)


def require_start(module: DumpedModule) -> Module:
    """Return the module before the first fusion pass. Raises ``UnusableInput``."""
    return module.read(_ends(module)[0])


def kind_of(module: DumpedModule) -> Callable[[MutableInstruction], str]:
    gpu = read_context(module).gpu
    if gpu is None:
        return lambda _: "kLoop"
    return lambda fusion: choose_kind(fusion, fusion, gpu.device, gpu.gpu_model.emitters)


def _require_early(module: DumpedModule, passes: ChangedPasses, changes: Changes) -> None:
    """Raises ``UnusableInput`` if a plan cannot express what the passes do under the changes."""
    if passes.is_late:
        raise UnusableInput(
            f"{module.name}: cannot {_asked(changes)}: {passes.runs[0].pass_name} runs on the "
            "result of a plan",
            hint=f"try `--flag xla_disable_hlo_passes={passes.runs[0].pass_name}`",
        )
    if passes.obstacle:
        raise UnusableInput(f"{module.name}: cannot {_asked(changes)}: {passes.obstacle}")


def _asked(changes: Changes) -> str:
    """Return the changes as options, without their dashes."""
    return (
        ", ".join(
            [f"set {id}.{name}={value}" for id, name, value in changes.thresholds]
            + [f"disable {id}" for id in changes.disabled]
            + [f"allow {pattern}" for pattern in changes.allowed]
            + [f"forbid {pattern}" for pattern in changes.forbidden]
        )
        or "replay fusion"
    )


def _replay(
    module: DumpedModule,
    passes: ChangedPasses,
    before: Module,
    changes: Changes,
    remainder: Rest,
    deadline: Deadline | None,
) -> tuple[FusionPlan, ...]:
    """Replay the fusion passes on ``before``, which was made from their first stage. Raises
    ``UnusableInput`` if a change names something else.
    """
    compiler = changes.apply(passes.compiler)
    names = [run.pass_name for run in passes.runs]
    pass_names = set(names)
    if remainder is not Rest.RULES:
        compiler = compiler.with_overrides(
            Forbidden((PairPattern("*", "*"),), changes.allowed), Allowed()
        )
        pass_names = {WRAPPER} if remainder is Rest.OFF else set()
        if changes.allowed:
            pass_names.update(
                fusion_pass.name
                for fusion_pass in compiler.passes
                if fusion_pass.known.takes_overrides
            )
    if remainder is Rest.RULES:  # the changes change nothing in the other passes
        names = [run.pass_name for run in find_runs(module)]
        pass_names.update(names)
    _require_part(module, changes, names, [name for name in names if name in pass_names])
    pass_names.difference_update(changes.disabled)
    return passes.replay(
        compiler,
        changes.disabled,
        changes.forbidden,
        context=replace(passes.context, deadline=deadline),
        start=before,
        passes=frozenset(pass_names),
    ).steps


def _require_part(
    module: DumpedModule, changes: Changes, passes: Sequence[str], replayed: Sequence[str]
) -> None:
    """Raises ``UnusableInput`` if a changed rule belongs to no replayed pass, or a disabled pass is
    not one of ``passes``, which a plan replaces.
    """
    replayed_passes = [
        fusion_pass
        for fusion_pass in choose_compiler(module).compiler.passes
        if fusion_pass.name in replayed
    ]
    ids = {*passes, *(rule.id for fusion_pass in replayed_passes for rule in fusion_pass.book)}
    for id in (*(id for id, _, _ in changes.thresholds), *changes.disabled):
        if id not in ids:
            raise UnusableInput(
                f"{module.name}: {id} does not affect this plan, which is made by "
                f"{', '.join(dict.fromkeys(replayed)) or 'no replayed pass'}"
            )


def threads_here() -> int:
    """Return the number of parallel threads, as the compiler counts them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _leave_single(graph: MutableModule) -> None:
    """Unfuse operations that were fused with constants only, as happens to all of them on GPUs."""
    for computation in walk_control_flow(graph):
        for fusion in computation.post_order():
            if fusion.opcode == "fusion" and fusion.fusion_kind != "kCustom":
                inside = [instruction.opcode for instruction in fusion.fused.instructions]
                if len(inside) - inside.count("constant") - inside.count("parameter") == 1:
                    computation.replace(fusion, unpack(fusion)[-1])


def find_fusing_runs(module: DumpedModule) -> list[PassRun]:
    """Return the runs of the fusion passes."""
    if module.backend == "cpu":
        return list(find_runs(module))
    start, end = _ends(module)
    first, last = module.stages.index(start), module.stages.index(end)
    return [run for run in find_runs(module) if first <= module.stages.index(run.before) < last]


def _ends(module: DumpedModule) -> tuple[Stage, Stage]:
    """Return the stage before the first fusion pass, and the one after the last."""
    if module.backend == "cpu":
        return _cpu_ends(module)
    if module.backend != "gpu":
        raise UnusableInput(
            f"{module.name}: was compiled for neither CPU nor GPU, and only those can be recompiled"
        )
    inside = [
        index for index, stage in enumerate(module.stages) if stage.name.pipeline == _GPU_PIPELINE
    ]
    if not inside or inside[-1] + 1 == len(module.stages):
        raise _incomplete(module, _GPU_PIPELINE)
    return module.stages[inside[0]], module.stages[inside[-1] + 1]


def _cpu_ends(module: DumpedModule) -> tuple[Stage, Stage]:
    runs = find_runs(module) if module.shows_all_passes else ()
    copying = next((i for i, stage in enumerate(module.stages) if is_copied(stage)), None)
    if not runs or not copying:
        raise _incomplete(module, "HLO passes after layout assignment")
    return runs[0].before, module.stages[copying - 1]


def is_copied(stage: Stage) -> bool:
    """Return whether the CPU compiler has reached or passed the insertion of copies."""
    places = (stage.name.pipeline, stage.name.after)
    return _COPYING in places or SCHEDULED in places or stage.is_final


def _incomplete(module: DumpedModule, pipeline: str) -> UnusableInput:
    return UnusableInput(
        f"{module.name}: the dump does not show the pipeline {quoted(pipeline)} from end to end",
        hint="dump with --xla_dump_hlo_pass_re=.*",
    )
