"""Tries which fusions the compiler forms under changed rules, or for another GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device, describe
from fusionscope.errors import UnusableInput
from fusionscope.explain.clock import KernelTime
from fusionscope.explain.replayed import Replayed
from fusionscope.explain.result import ChangedKernel, ChangedPair, WhatIf
from fusionscope.explain.suggestion import Figures
from fusionscope.explain.times import clock_for, sum_up
from fusionscope.graph.comparison import find_divergence, is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.outcomes import TOGETHER, Pair, pairs_after
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import PassContext
from fusionscope.passes.overrides import unmatched_patterns
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.progress import Progress, about, silent
from fusionscope.rules.changes import Changes
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

_NO_OVERRIDES = (
    "only instruction fusion takes overrides: the fusion merger after it may decide differently"
)
_GUESS = (
    "a guess: {rules} was not checked against {version}, or its replay of this dump differs from "
    "what the compiler did"
)
_PASSES_BEFORE = (
    "the passes before fusion are not replayed: their result is that for the GPU of the dump"
)
_PASSES_BETWEEN = (
    "the changed rules changed the first of two fusion passes: other passes between the two "
    "are not replayed"
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
    other: Device | None = None,
    *,
    progress: Progress = silent,
) -> WhatIf:
    """Replay the fusion passes of ``module`` with the original and the changed rules.

    ``device`` is the GPU to assume, None for the dump's own; ``other`` is the GPU for the changed
    rules, if that is another. Raises ``UnusableInput`` if the passes cannot be replayed.
    """
    chosen = choose_compiler(module, compiler)
    compiler = chosen.compiler
    changed = changes.apply(compiler)
    context = replace(read_context(module, device), progress=progress)
    changed_settings = context if other is None else read_context(module, other)
    changed_settings = replace(changed_settings, progress=about("with the changes", progress))
    runs = _runs(module, compiler, changed, changes.disabled)
    if not runs:
        raise UnusableInput(
            f"{module.name}: no fusion pass can be replayed, so no changes can be tried",
            file=str(module.stages[0].file),
        )
    inputs = [module.read(run.before) for run in runs]
    old: dict[str, FusionPlan] = {}
    new: dict[str, FusionPlan] = {}
    current: Module | None = None
    notes = list(_notes(changes, compiler, runs, inputs))
    if other is not None:
        notes.append(_PASSES_BEFORE)
    is_guess = not chosen.are_checked
    for index, run in enumerate(runs):
        as_is = old[run.pass_name] = replay(run.pass_name, inputs[index], context, compiler)
        after = inputs[index] if run.after is None else module.read(run.after)
        is_guess = is_guess or not is_same(as_is.graph, after)
        start = inputs[index] if current is None else current
        if run.pass_name in changes.disabled:
            plan = FusionPlan(run.pass_name, (), MutableModule(start))
        else:
            plan = replay(run.pass_name, start, changed_settings, changed)
        new[run.pass_name] = plan
        if current is not None or find_divergence(plan.module, as_is.module) is not None:
            current = plan.module
            following = inputs[index + 1 : index + 2]
            if following and find_divergence(as_is.module, following[0]) is not None:
                notes.append(_PASSES_BETWEEN)
    if is_guess:
        notes.append(_GUESS.format(rules=chosen.name, version=chosen.version))
    pairs = [pairs_after(inputs[0], plan.module) for plan in (as_is, plan)]
    refused = [
        Replayed({name: (plan,) for name, plan in plans.items()}, runs[-1].pass_name)
        for plans in (old, new)
    ]
    costs = _costs(as_is.module, module, context), _costs(plan.module, module, changed_settings)
    changed_pairs = [
        _Changed(was, now, _refusal(refused[now.outcome not in TOGETHER], was, compiler))
        for was, now in zip(*pairs, strict=True)
        if (was.outcome in TOGETHER) != (now.outcome in TOGETHER)
    ]
    words = [str(changes)] if changes else []
    if other is not None:
        words.append(f"for {describe(other)}")
    return WhatIf(
        changes=", ".join(words),
        before=_figures(costs[0]),
        after=_figures(costs[1]),
        final=_final(module, context, costs) if other is None else None,
        gone=_difference(costs[0], costs[1]),
        made=_difference(costs[1], costs[0]),
        pairs=_changed_pairs(changes, changed_pairs),
        notes=tuple(dict.fromkeys(notes)),
        is_guess=is_guess,
    )


def _costs(stage: Module, module: DumpedModule, context: PassContext) -> list[_Cost]:
    """Return the kernels of one stage, with their times."""
    clock = clock_for(stage, module.backend, context.gpu)
    kernels = find_kernels(Numbering().number(stage), module.backend)
    return [(kernel, clock.time(kernel) if clock is not None else None) for kernel in kernels]


def _figures(costs: Sequence[_Cost]) -> Figures:
    kernels = [kernel for kernel, _ in costs]
    time = sum_up(kernels, [time for _, time in costs])
    return Figures(
        sum(kernel.runs for kernel in kernels),
        sum(kernel.bytes_moved for kernel in kernels),
        time.microseconds if time is not None else None,
    )


def _final(
    module: DumpedModule, context: PassContext, costs: tuple[list[_Cost], list[_Cost]]
) -> tuple[Figures, Figures] | None:
    """Return the kernels of the final module, and the result if the later passes do the same as
    they did; None if it was not dumped.
    """
    if module.final is None:
        return None
    final = _figures(_costs(module.read(module.final), module, context))
    was, now = map(_figures, costs)
    time = None
    if final.time_us is not None and was.time_us is not None and now.time_us is not None:
        time = final.time_us + now.time_us - was.time_us
    return final, Figures(
        final.launches + now.launches - was.launches,
        final.bytes_moved + now.bytes_moved - was.bytes_moved,
        time,
    )


def _difference(ours: Sequence[_Cost], theirs: Sequence[_Cost]) -> tuple[ChangedKernel, ...]:
    """Return the kernels that are not among ``theirs``, whatever their names, the longest first."""
    left = Counter(map(_form, theirs))
    found: list[ChangedKernel] = []
    for cost in ours:
        form = _form(cost)
        if left[form]:
            left[form] -= 1
            continue
        kernel, time = cost
        took = time.nanoseconds * kernel.runs / 1_000 if time is not None else None
        found.append(ChangedKernel(kernel.name, kernel.runs, kernel.bytes_moved, took))
    return tuple(sorted(found, key=lambda each: (-(each.time_us or 0.0), -each.bytes_moved)))


def _form(cost: _Cost) -> Hashable:
    kernel, time = cost
    operations = tuple(sorted(kernel.operations))
    return kernel.kind, operations, kernel.bytes_read, kernel.bytes_written, kernel.runs, time


def _changed_pairs(changes: Changes, changed: Sequence[_Changed]) -> tuple[ChangedPair, ...]:
    asked = [each for each in changed if _is_asked(each, changes)]
    return tuple(
        ChangedPair(
            producer=each.was.producer.name,
            consumer=each.was.consumer.name,
            before=each.was.outcome,
            after=each.now.outcome,
            rule=each.rule,
            bytes_between=each.was.bytes_between,
            follows=None if each in asked else _followed(each, asked),
        )
        for each in changed
    )


def _is_asked(changed: _Changed, changes: Changes) -> bool:
    """Return whether the changes are about the pair itself, or about the rule that refuses it."""
    ends = changed.was.producer, changed.was.consumer
    patterns = (*changes.allowed, *changes.forbidden)
    rules = {*(id for id, _, _ in changes.thresholds), *changes.disabled}
    return changed.rule in rules or any(
        all(
            fnmatchcase(end.name, pattern) or fnmatchcase(end.opcode, pattern)
            for end, pattern in zip(ends, each, strict=True)
        )
        for each in patterns
    )


def _followed(changed: _Changed, asked: Sequence[_Changed]) -> str | None:
    """Return the requested pair that shares a kernel or an operation with this one, before or after
    the change; None if there is none.
    """
    for each in asked:
        kernels = {each.was.kernel, each.now.kernel} & {changed.was.kernel, changed.now.kernel}
        ends = {each.was.producer, each.was.consumer}
        if kernels - {None} or ends & {changed.was.producer, changed.was.consumer}:
            return f"{each.was.producer.name} -> {each.was.consumer.name}"
    return None


def _runs(
    module: DumpedModule, compiler: Compiler, changed: Compiler, disabled: tuple[str, ...]
) -> list[PassRun]:
    """Return the runs to replay: on a GPU the main ones, or others if only their rules were
    changed.
    """
    runs = list(find_runs(module))
    if module.backend != "gpu":
        while runs and runs[-1].pass_name == "fusion-wrapper":  # it fuses no two operations
            runs.pop()
        return runs
    other = {
        new.name for old, new in zip(compiler.passes, changed.passes, strict=True) if old != new
    }
    other.update(disabled)
    chains = choose_compiler(module).compiler.chains
    asked = [passes for passes in chains if other.intersection(passes)]
    passes = (asked or chains)[0]
    return [run for run in runs if run.pass_name in passes]


def _notes(
    changes: Changes, compiler: Compiler, runs: list[PassRun], inputs: list[Module]
) -> Iterator[str]:
    """Yield notes on changes that can have no effect, or no valid one."""
    if changes.kernels:
        yield "the kernels that a plan lists are for `fusionscope rerun`, which are not tried here"
    passes = {run.pass_name for run in runs}
    if "fusion_merger" in passes and (changes.allowed or changes.forbidden):
        yield _NO_OVERRIDES
    asked = {rule.id: rule for each in compiler.passes if each.name in passes for rule in each.book}
    for id in dict.fromkeys([*(id for id, _, _ in changes.thresholds), *changes.disabled]):
        if id in passes:
            continue
        if id not in asked:
            yield f"none of the replayed passes uses {id}"
        elif id in changes.disabled and asked[id].is_legality:
            yield f"without {id} the module may not compile, or may compute something else"
    for run, before in zip(runs, inputs, strict=True):
        if compiler.find(run.pass_name).known.takes_overrides:
            for pattern in unmatched_patterns((*changes.allowed, *changes.forbidden), before):
                yield f"no pair before the fusion pass matches {pattern}"


def _refusal(replayed: Replayed, pair: Pair, compiler: Compiler) -> str | None:
    """Return the rule that keeps the pair apart, if it is kept apart: the last pass that decided
    takes precedence.
    """
    for pass_name in (*reversed(compiler.deciding), *chain(*compiler.chains[1:])):
        reason = replayed.reason(pass_name, pair.producer.name, pair.consumer.name)
        if reason is not None:
            return reason.rule
    return None
