"""Tries which fusions the compiler forms under changed rules, or for another GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device, describe
from fusionscope.errors import UnusableInput
from fusionscope.facts.clock import KernelTime
from fusionscope.facts.result import ChangedKernel, ChangedPair, WhatIf
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import clock_for, figures_of, sum_up
from fusionscope.graph.loop_functions import with_functions
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.kernels import Kernel, find_kernels, form_of, without_equals
from fusionscope.history.loops import LoopFacts, read_loop_facts
from fusionscope.history.outcomes import TOGETHER, Pair
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import PassContext
from fusionscope.progress import Progress, about, silent
from fusionscope.reasons.replayed import ReplayedReasons
from fusionscope.rules.changes import Changes
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.what_if.changed_passes import ChangedPasses, names_pair
from fusionscope.what_if.changed_peak import predict_peak
from fusionscope.what_if.final_figures import FinalFigures, Predicted

_NO_OVERRIDES = (
    "only instruction fusion asks --allow: the fusion merger after it may decide differently"
)
_GUESS = (
    "a guess: {rules} was not checked against {version}, or its replay of this dump differs from "
    "what the compiler did"
)
_PASSES_BEFORE = (
    "the passes before fusion are not replayed: their result is that for the GPU of the dump"
)
_UNCERTAIN = (
    "the compiler copies values after fusion in another way than is predicted, so the figures of "
    "the final module may be off"
)


class _Changed(NamedTuple):
    """A pair before and after the change, and the rule that refuses it in one of the two."""

    was: Pair
    now: Pair
    rule: str | None


_Cost = tuple[Kernel, KernelTime | None]


def what_if(
    module: DumpedModule,
    changes: Changes,
    compiler: Compiler | None = None,
    device: Device | None = None,
    other_device: Device | None = None,
    *,
    progress: Progress = silent,
) -> WhatIf:
    """Replay the fusion passes of ``module`` with the original and the changed rules.

    ``device`` is the GPU to assume, None for the dump's own; ``other_device`` is the GPU for the
    changed rules, if that is another. Raises ``UnusableInput`` if the passes cannot be replayed.
    """
    passes = ChangedPasses(module, changes, compiler, device)
    choice = passes.chosen
    passes.context = replace(passes.context, progress=progress)
    as_is, is_own = passes.unchanged()
    settings = passes.context
    if other_device is not None:
        settings = read_context(module, other_device)
    settings = replace(settings, progress=about("with the changes", progress))
    changed = passes.changed(settings)
    is_guess = not (choice.are_checked and is_own)
    notes = list(_notes(changes, passes))
    if other_device is not None:
        notes.append(_PASSES_BEFORE)
    if passes.obstacle:
        notes.append(f"{passes.obstacle}: the figures are those after {passes.runs[-1].pass_name}")
    if is_guess:
        notes.append(_GUESS.format(rules=choice.name, version=choice.version))
    final = predict_final(module, passes, changed.module) if other_device is None else None
    if final is not None and not final[1].is_certain:
        notes.append(_UNCERTAIN)
    peak = _peak(module, passes, changed.module) if other_device is None else None
    pairs = [passes.pairs_in(("after", plans.module)) for plans in (as_is, changed)]
    refused = [
        ReplayedReasons.of_plans(
            {step.pass_name: (step,) for step in plans.steps}, passes.runs[-1].pass_name
        )
        for plans in (as_is, changed)
    ]
    loops = [_loops(plans.module, module, passes) for plans in (as_is, changed)]
    costs = (
        _costs(as_is.module, module, passes.context, loops[0]),
        _costs(changed.module, module, settings, loops[1]),
    )
    changed_pairs = [
        _Changed(was, now, _refusal(refused[now.outcome not in TOGETHER], was, passes))
        for was, now in zip(*pairs, strict=True)
        if (was.outcome in TOGETHER) != (now.outcome in TOGETHER)
    ]
    words = [str(changes)] if changes else []
    if other_device is not None:
        words.append(f"for {describe(other_device)}")
    return WhatIf(
        changes=", ".join(words),
        before=_figures(costs[0]),
        after=_figures(costs[1]),
        final=(final[0], final[1].figures) if final is not None else None,
        gone=_difference(costs[0], costs[1]),
        made=_difference(costs[1], costs[0]),
        pairs=_changed_pairs(changes, changed_pairs),
        notes=tuple(dict.fromkeys(notes)),
        is_guess=is_guess,
        peak=peak,
    )


def predict_final(
    module: DumpedModule, passes: ChangedPasses, changed: Module
) -> tuple[Figures, Predicted] | None:
    """Return the figures of the final module, and what they become if ``changed`` is the result of
    ``passes``; None if the dump has no final module, or other passes would act differently.
    """
    if module.final is None or passes.obstacle:
        return None
    final = FinalFigures(
        module.read(module.final),
        passes.after,
        module.backend,
        passes.context.gpu,
        is_copied=passes.is_late,
        loops=read_loop_facts(module),
        makes_functions=passes.compiler.makes_functions,
    )
    return final.before, final.predict(changed)


def _peak(module: DumpedModule, passes: ChangedPasses, changed: Module) -> tuple[int, int] | None:
    try:
        return predict_peak(module, passes, changed)
    except UnusableInput:  # noted by the analysis of the module
        return None


def _loops(stage: Module, module: DumpedModule, passes: ChangedPasses) -> LoopFacts:
    """Return the facts about the loops of one stage after fusion."""
    loops = read_loop_facts(module)
    if module.backend != "cpu":
        return loops
    graph = MutableModule(stage)
    loops = with_functions(loops, graph, of_any_size=passes.compiler.makes_functions)
    graph.dissolve()
    return loops


def _costs(
    stage: Module, module: DumpedModule, context: PassContext, loops: LoopFacts
) -> list[_Cost]:
    """Return the kernels of one stage, with their times."""
    clock = clock_for(stage, module.backend, context.gpu)
    kernels = find_kernels(Numbering().number(stage), module.backend, loops)
    return [(kernel, clock.time(kernel) if clock is not None else None) for kernel in kernels]


def _figures(costs: Sequence[_Cost]) -> Figures:
    kernels = [kernel for kernel, _ in costs]
    return figures_of(kernels, sum_up(kernels, [time for _, time in costs]))


def _difference(ours: Sequence[_Cost], theirs: Sequence[_Cost]) -> tuple[ChangedKernel, ...]:
    """Return the kernels that are not among ``theirs``, whatever their names, the longest first."""
    kernels: list[ChangedKernel] = []
    for kernel, time in without_equals(ours, theirs, lambda cost: (form_of(cost[0]), cost[1])):
        took = time.nanoseconds * kernel.runs / 1_000 if time is not None else None
        kernels.append(ChangedKernel(kernel.name, kernel.launches, kernel.bytes_moved, took))
    return tuple(
        sorted(
            kernels,
            key=lambda kernel_changed: (
                -(kernel_changed.time_us or 0.0),
                -kernel_changed.bytes_moved,
            ),
        )
    )


def _changed_pairs(changes: Changes, changed: Sequence[_Changed]) -> tuple[ChangedPair, ...]:
    requested = [change for change in changed if _is_asked(change, changes)]
    return tuple(
        ChangedPair(
            producer=change.was.producer.name,
            consumer=change.was.consumer.name,
            before=change.was.outcome,
            after=change.now.outcome,
            rule=change.rule,
            bytes_between=change.was.bytes_between,
            follows=None if change in requested else _followed(change, requested),
        )
        for change in changed
    )


def _is_asked(changed: _Changed, changes: Changes) -> bool:
    """Return whether the changes are about the pair itself, or about the rule that refuses it."""
    patterns = (*changes.allowed, *changes.forbidden)
    rules = {*(id for id, _, _ in changes.thresholds), *changes.disabled}
    return changed.rule in rules or any(names_pair(pattern, changed.was) for pattern in patterns)


def _followed(changed: _Changed, requested: Sequence[_Changed]) -> str | None:
    """Return the requested pair that shares a kernel or an operation with this one, before or after
    the change; None if there is none.
    """
    for request in requested:
        kernels = {request.was.kernel, request.now.kernel} & {
            changed.was.kernel,
            changed.now.kernel,
        }
        ends = {request.was.producer, request.was.consumer}
        if kernels - {None} or ends & {changed.was.producer, changed.was.consumer}:
            return f"{request.was.producer.name} -> {request.was.consumer.name}"
    return None


def _notes(changes: Changes, passes: ChangedPasses) -> Iterator[str]:
    """Yield notes on changes that can have no effect, or no valid one."""
    if changes.kernels:
        yield "the kernels that a plan lists are for `fusionscope rerun`, which are not tried here"
    if changes.allowed and any(run.pass_name == "fusion_merger" for run in passes.runs):
        yield _NO_OVERRIDES
    for pattern, hint in passes.unmatched_patterns():
        yield "; ".join(filter(None, (f"no pair before the fusion pass matches {pattern}", hint)))
    rules_by_id = {
        rule.id: rule for fusion_pass in passes.replayed_passes for rule in fusion_pass.book
    }
    names = {fusion_pass.name for fusion_pass in passes.replayed_passes}
    for id in dict.fromkeys([*(id for id, _, _ in changes.thresholds), *changes.disabled]):
        if id not in rules_by_id and id not in names:
            yield f"none of the replayed passes uses {id}"
        elif id in changes.disabled and id in rules_by_id and rules_by_id[id].is_legality:
            yield f"without {id} the module may not compile, or may compute something else"


def _refusal(replayed: ReplayedReasons, pair: Pair, passes: ChangedPasses) -> str | None:
    """Return the rule that keeps the pair apart, if it is kept apart: the last pass that decided
    takes precedence.
    """
    producer, consumer = (passes.later_name(end.name) for end in (pair.producer, pair.consumer))
    for run in reversed(passes.runs):
        reason = replayed.reason(run.pass_name, producer, consumer)
        if reason is not None:
            return reason.rule
    return None
