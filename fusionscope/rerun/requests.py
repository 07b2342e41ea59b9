"""Looks up what a user asked for: first in the plan, then in the final module.

A pair to fuse, or to keep apart, is named as ``explain`` lists it. A changed rule, or a pass that
is left out, is done if the pairs whose outcome it changes have that outcome in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import explain_module
from fusionscope.history.outcomes import TOGETHER, Outcome, Pair
from fusionscope.hlo import Module
from fusionscope.reasons.replayed import ReplayedReasons
from fusionscope.what_if.changed_passes import names_pair

if TYPE_CHECKING:
    from fusionscope.passes.overrides import PairPattern
    from fusionscope.rerun.plans import Plan

_HOOK = "apply-xla-"  # the pass that applies a plan
_START = "pipeline-start"
_MOST = 3  # pairs per line


@dataclass(frozen=True, slots=True)
class Request:
    """One requested change, in words. It is empty if there are none.

    words: the request
    problem: what differs, and by which pass or rule; empty if it is done
    pairs: the pairs that it names, or whose outcome it changes
    missed: those of them that do not end as requested
    """

    words: str
    problem: str
    pairs: int
    missed: int


def find_hook(dump: DumpedModule) -> Stage | None:
    """Return the stage right after the compiler's hook, or None if the hook changed nothing."""
    return next((stage for stage in dump.stages if stage.name.after.startswith(_HOOK)), None)


def require_possible(module: DumpedModule, plan: Plan) -> None:
    """Raises ``UnusableInput`` if ``plan`` fuses none of the pairs that a pattern allows, or keeps
    none apart that a pattern forbids. Names the rule or pass.
    """
    if not (plan.changes.allowed or plan.changes.forbidden):
        return
    for request in _look_up_pairs(plan, plan.passes.pairs_in(*_steps(plan)), module):
        if request.problem and request.missed == request.pairs:
            raise UnusableInput(f"{module.name}: cannot {request.words}: {request.problem}")


def find_made(plan: Plan, dump: DumpedModule, final: Module) -> tuple[Pair, ...]:
    """Return the pairs before fusion with their outcome in ``final``, which ``plan`` led to."""
    hook = find_hook(dump)
    behind = dump.stages[dump.stages.index(hook) + 1 :] if hook is not None else dump.stages
    later = [(_pass_of(stage), dump.read(stage)) for stage in behind if not stage.is_final]
    return plan.passes.pairs_in(*_steps(plan), *later, ("the last passes", final))


def look_up(plan: Plan, pairs: Sequence[Pair], dump: DumpedModule) -> tuple[Request, ...]:
    """Return what came of each request of ``plan``. ``pairs`` are those of ``find_made``."""
    changes = plan.changes
    if not (changes.allowed or changes.forbidden or changes.thresholds or changes.disabled):
        return ()
    return (*_look_up_pairs(plan, pairs, dump), *_look_up_rules(plan, pairs))


def _steps(plan: Plan) -> list[tuple[str, Module]]:
    """Return the module after each pass of ``plan``, with the name of the pass."""
    steps = [(step.pass_name, step.module) for step in plan.steps]
    return [*steps[:-1], (steps[-1][0] if steps else "the plan", plan.after)]


def _pass_of(stage: Stage) -> str:
    """Return the pass before ``stage``, or the pipeline that starts with it."""
    return stage.label if stage.name.after == _START else stage.name.after


def _look_up_pairs(plan: Plan, pairs: Sequence[Pair], module: DumpedModule) -> Iterator[Request]:
    for pattern in plan.changes.allowed:
        matches = _named(pattern, pairs)
        apart = [pair for pair in matches if pair.outcome is Outcome.NOT_FUSED]
        problem = _refused(plan, apart, module)
        yield Request(f"allow {pattern}", problem, len(matches), len(apart))
    for pattern in plan.changes.forbidden:
        matches = _named(pattern, pairs)
        joined = [pair for pair in matches if pair.outcome in TOGETHER]
        problem = _list(f"{_words(pair)} is fused by {pair.stage}" for pair in joined)
        yield Request(f"forbid {pattern}", problem, len(matches), len(joined))


def _named(pattern: PairPattern, pairs: Iterable[Pair]) -> list[Pair]:
    return [p for p in pairs if p.outcome is not Outcome.GONE and names_pair(pattern, p)]


def _look_up_rules(plan: Plan, pairs: Sequence[Pair]) -> Iterator[Request]:
    """Yield the outcome of changed rules, and of passes that are left out."""
    changes = plan.changes
    words = [f"set {id}.{name}={value}" for id, name, value in changes.thresholds]
    words += [f"disable {id}" for id in changes.disabled]
    if not words:
        return
    was = plan.passes.pairs_in(("before", plan.passes.after))
    planned_pairs = plan.passes.pairs_in(*_steps(plan))
    differing = [
        (now, planned)
        for old, planned, now in zip(was, planned_pairs, pairs, strict=True)
        if Outcome.GONE not in (old.outcome, planned.outcome, now.outcome)
        and (old.outcome in TOGETHER) != (planned.outcome in TOGETHER)
    ]
    missed = [
        now
        for now, planned in differing
        if (now.outcome in TOGETHER) != (planned.outcome in TOGETHER)
    ]
    problem = _list(
        f"{_words(pair)} is fused by {pair.stage}"
        if pair.outcome in TOGETHER
        else f"{_words(pair)} is not fused"
        for pair in missed
    )
    for word in words:
        yield Request(word, problem, len(differing), len(missed))


def _refused(plan: Plan, pairs: Sequence[Pair], module: DumpedModule) -> str:
    if not pairs:
        return ""
    steps = [ReplayedReasons.of_plans({s.pass_name: (s,)}, s.pass_name) for s in plan.steps]
    reasons = _reasons(module) if any(_rule(plan, steps, pair) is None for pair in pairs) else {}

    def why(pair: Pair) -> str:
        rule = _rule(plan, steps, pair) or reasons.get(_words(pair))
        return f" ({rule})" if rule else ""

    return _list(f"{_words(pair)} is not fused{why(pair)}" for pair in pairs)


def _rule(plan: Plan, steps: Sequence[ReplayedReasons], pair: Pair) -> str | None:
    """Return the rule by which the last pass that decided on the pair refused it."""
    ends = (plan.passes.later_name(end.name) for end in (pair.producer, pair.consumer))
    producer, consumer = ends
    for step in reversed(steps):
        reason = step.reason(step.main_pass, producer, consumer)
        if reason is not None:
            return reason.rule
    return None


def _reasons(module: DumpedModule) -> dict[str, str]:
    """Return the rule for each refused pair, as ``explain`` shows it."""
    return {
        f"{pair.producer.name} -> {pair.consumer.name}": pair.reason
        for pair in explain_module(module).pairs
        if pair.reason is not None
    }


def _words(pair: Pair) -> str:
    return f"{pair.producer.name} -> {pair.consumer.name}"


def _list(lines: Iterable[str]) -> str:
    problems = list(lines)
    more = len(problems) - _MOST
    return "; ".join([*problems[:_MOST], *([f"and {more} more"] if more > 0 else [])])
