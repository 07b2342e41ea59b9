"""Plans: which operations the compiler is to fuse.

A plan is the module after the fusion passes or, if the compiler decides on the rest, before them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.gpu.kinds import choose_kind
from fusionscope.graph.cleanup import clean_up
from fusionscope.graph.fusing import unpack
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand, to_module
from fusionscope.hlo import Module
from fusionscope.passes.overrides import Forbidden, PairPattern, unmatched_patterns
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.passes.state import FusionPair
from fusionscope.rerun.buffers import CONTROL_FLOW, walk_control_flow
from fusionscope.rerun.kernels import place_kernels
from fusionscope.rerun.legality import require_legal
from fusionscope.rerun.parallel_tasks import assign_tasks
from fusionscope.rerun.placeholders import NAMING, put_placeholders, replace_placeholders
from fusionscope.rules.changes import NO_CHANGES, Changes
from fusionscope.user_order.user_history import arrange, find_user_order
from fusionscope.versions.choice import choose_compiler, find_rewriters
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

# The GPU pipeline that fuses.
_GPU_PIPELINE = "fusion"
WRAPPER = "fusion-wrapper"
_COPYING = "copy-insertion"
SCHEDULED = "HLO_passes_after_scheduling"
BARRIER = "opt-barrier"


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
    ``changes`` and ``steps``, the replays of the fusion passes in their order.
    """

    words: str
    before: Module
    after: Module
    rest: Rest = Rest.RULES
    changes: Changes = NO_CHANGES
    steps: tuple[FusionPlan, ...] = ()
    is_own: bool = False


def own_plan(module: DumpedModule) -> Plan:
    """Return the compiler's own plan. Raises ``UnusableInput`` if the dump does not show it."""
    start, end = _ends(module)
    before, after = module.read(start), module.read(end)
    return Plan(words="the compiler's own plan", before=before, after=after, is_own=True)


def make_plan(module: DumpedModule, changes: Changes, rest: Rest = Rest.RULES) -> Plan:
    """Return the plan for a module under ``changes``. Raises ``UnusableInput`` if it cannot be
    replayed, or is not a program that a compiler accepts.
    """
    start, end = _ends(module)
    before = module.read(start)
    words = str(changes) or "the rules as they are"
    if rest is not Rest.RULES:
        words = f"{changes}, and nothing else" if changes else "no fusion"
        if rest is Rest.XLA:
            words = f"{changes or 'nothing'}, and the rest as the compiler decides"
    for pattern in unmatched_patterns((*changes.allowed, *changes.forbidden), before):
        raise UnusableInput(f"{module.name}: no pair before fusion matches {shorten(str(pattern))}")
    placed = MutableModule(before)
    kernels = frozenset(place_kernels(placed, changes.kernels, _kind_of(module)))
    graph = MutableModule(to_module(placed)) if kernels else placed
    put_placeholders(graph, lambda each: each.name in kernels)  # no rule looks inside one
    ready = to_module(graph)
    steps = _replay(module, start, ready, changes, rest)
    graph = MutableModule(steps[-1].module if steps else ready)
    replace_placeholders(graph, placed)
    if rest is Rest.XLA:
        _leave_single(graph)
        _set_apart(graph, changes.forbidden)
    else:
        clean_up(graph, module.backend)
        if module.backend == "cpu":
            assign_tasks(graph, _threads())
    after = to_module(graph)
    require_legal(after, module.read(end), before, module.backend)
    return Plan(words=words, before=before, after=after, rest=rest, changes=changes, steps=steps)


def require_start(module: DumpedModule) -> Module:
    """Return the module before the first fusion pass. Raises ``UnusableInput``."""
    return module.read(_ends(module)[0])


def _kind_of(module: DumpedModule) -> Callable[[MutableInstruction], str]:
    gpu = read_context(module).gpu
    if gpu is None:
        return lambda _: "kLoop"
    return lambda fusion: choose_kind(fusion, fusion, gpu.device, gpu.gpu_model.emitters)


def _replay(
    module: DumpedModule, start: Stage, before: Module, changes: Changes, rest: Rest
) -> tuple[FusionPlan, ...]:
    """Replay the fusion passes on ``before``, which was made from ``start``. Raises
    ``UnusableInput`` if a change names something else.
    """
    compiler = changes.apply(choose_compiler(module).compiler)
    runs = find_fusing_runs(module)
    passes = [run.pass_name for run in runs]
    if rest is not Rest.RULES:
        others = Forbidden((PairPattern("*", "*"),), changes.allowed)
        compiler = compiler.with_first((others,))
        kept = {WRAPPER} if rest is Rest.OFF else set()
        if changes.allowed:
            kept.update(each.name for each in compiler.passes if each.known.takes_overrides)
        runs = [run for run in runs if run.pass_name in kept]
    _require_part(module, changes, passes, [run.pass_name for run in runs])
    runs = [run for run in runs if run.pass_name not in changes.disabled]
    context = read_context(module)
    graph = None
    if context.gpu is not None:
        graph = arrange(before, find_user_order(module, start, find_rewriters(module)))
    steps: list[FusionPlan] = []
    for run in runs:
        steps.append(replay(run.pass_name, before, context, compiler, graph))
        before, graph = steps[-1].module, steps[-1].graph
    return tuple(steps)


def _require_part(
    module: DumpedModule, changes: Changes, passes: Sequence[str], replayed: Sequence[str]
) -> None:
    """Raises ``UnusableInput`` if a changed rule belongs to no replayed pass, or a disabled pass is
    not one of ``passes``, which a plan replaces.
    """
    asked = [each for each in choose_compiler(module).compiler.passes if each.name in replayed]
    known = {*passes, *(rule.id for each in asked for rule in each.book)}
    for id in (*(id for id, _, _ in changes.thresholds), *changes.disabled):
        if id not in known:
            is_pass = id in {run.pass_name for run in find_runs(module)}
            alone = "--disable this pass alone, and the compiler leaves it out"
            raise UnusableInput(
                f"{module.name}: {id} does not affect this plan, which is made by "
                f"{', '.join(dict.fromkeys(replayed)) or 'no replayed pass'}",
                hint=alone if is_pass else None,
            )


def _threads() -> int:
    """Return the number of parallel threads, as the compiler counts them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _leave_single(graph: MutableModule) -> None:
    """Unfuse operations that were fused with constants only, as happens to all of them on GPUs."""
    for computation in walk_control_flow(graph):
        for fusion in computation.post_order():
            if fusion.opcode == "fusion" and fusion.fusion_kind != "kCustom":
                inside = [each.opcode for each in fusion.fused.instructions]
                if len(inside) - inside.count("constant") - inside.count("parameter") == 1:
                    computation.replace(fusion, unpack(fusion)[-1])


def _set_apart(graph: MutableModule, patterns: Sequence[PairPattern]) -> None:
    """Separate all matching pairs by a barrier, which the compiler does not fuse across."""
    for computation in walk_control_flow(graph):
        for consumer in computation.post_order():
            for slot, producer in enumerate(list(consumer.operands)):
                pair = FusionPair(producer, consumer, slot)
                if consumer.opcode not in CONTROL_FLOW | NAMING and any(
                    pattern.fits(pair) for pattern in patterns
                ):
                    barrier = computation.make(BARRIER, producer.shape, [producer])
                    replace_operand(consumer, producer, barrier)


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
