"""What the compiler would fuse under rules that a user changed, or for another GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device, describe
from fusionscope.errors import UnusableInput
from fusionscope.explain.replayed import Replayed
from fusionscope.explain.result import ChangedPair, WhatIf
from fusionscope.explain.times import estimate
from fusionscope.graph.comparison import find_divergence, is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.kernels import total_kernels
from fusionscope.history.outcomes import TOGETHER, Pair, pairs_after
from fusionscope.hlo import Module
from fusionscope.passes.overrides import unmatched_patterns
from fusionscope.passes.plan import FusionPlan, PassRun
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
    "the passes before fusion are not replayed: their result is for the GPU of the dump"
)
_PASSES_BETWEEN = (
    "the changed rules changed the first of two fusion passes: what other passes do between the "
    "two is not replayed"
)


def what_if(
    module: DumpedModule,
    changes: Changes,
    compiler: Compiler | None = None,
    device: Device | None = None,
    other: Device | None = None,
) -> WhatIf:
    """Replays the fusion passes of ``module`` with the rules as they are and as changed.

    ``device`` is the GPU to take, the dump's own where None, and ``other`` the one to take with the
    changed rules, where that is another. Raises ``UnusableInput`` where they cannot be replayed.
    """
    chosen = choose_compiler(module, compiler)
    compiler = chosen.compiler
    changed = changes.apply(compiler)
    context = read_context(module, device)
    changed_settings = context if other is None else read_context(module, other)
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
        is_guess = is_guess or not is_same(as_is.module, after)
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
    as_is_total, changed_total = (
        total_kernels(each.module, module.backend) for each in (as_is, plan)
    )
    words = [str(changes)] if changes else []
    if other is not None:
        words.append(f"for {describe(other)}")
    return WhatIf(
        changes=", ".join(words),
        launches=as_is_total.launches,
        bytes_moved=as_is_total.bytes_moved,
        launches_after=changed_total.launches,
        bytes_moved_after=changed_total.bytes_moved,
        pairs=tuple(
            ChangedPair(
                producer=old_pair.producer.name,
                consumer=old_pair.consumer.name,
                before=old_pair.outcome,
                after=new_pair.outcome,
                rule=_refusal(refused[new_pair.outcome not in TOGETHER], old_pair, compiler),
                bytes_between=old_pair.bytes_between,
            )
            for old_pair, new_pair in zip(*pairs, strict=True)
            if (old_pair.outcome in TOGETHER) != (new_pair.outcome in TOGETHER)
        ),
        notes=tuple(dict.fromkeys(notes)),
        is_guess=is_guess,
        time=estimate(as_is.module, module.backend, context.gpu),
        time_after=estimate(plan.module, module.backend, changed_settings.gpu),
    )


def _runs(
    module: DumpedModule, compiler: Compiler, changed: Compiler, disabled: tuple[str, ...]
) -> list[PassRun]:
    """Those to replay: of a GPU the main ones, or others if only their rules were changed."""
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
    """Which of the changes can have no effect, and which none that is to be had."""
    if changes.kernels:
        yield "the kernels that a plan lists are for `fusionscope rerun`, they are not tried here"
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
    """The rule that keeps the pair apart, where it is kept apart: the pass that decided last is
    asked first."""
    for pass_name in (*reversed(compiler.deciding), *chain(*compiler.chains[1:])):
        reason = replayed.reason(pass_name, pair.producer.name, pair.consumer.name)
        if reason is not None:
            return reason.rule
    return None
