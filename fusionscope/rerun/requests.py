"""Checks a user's requests in the final module: pairs to fuse, and pairs to keep apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.dump import DumpedModule, Stage
from fusionscope.explain.replayed import Replayed
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.outcomes import TOGETHER, Outcome, Pair, find_pairs
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.overrides import PairPattern
from fusionscope.passes.state import FusionPair
from fusionscope.rerun.plans import Plan

_HOOK = "apply-xla-"  # the pass that applies a plan
_START = "pipeline-start"
_MOST = 3  # pairs per line


@dataclass(frozen=True, slots=True)
class Request:
    """One requested change, in words. ``problem`` says how the final module deviates from it, and
    because of which pass or rule; empty if it was carried out.
    """

    words: str
    problem: str = ""


def find_hook(made: DumpedModule) -> Stage | None:
    """Return the stage right after the compiler's hook, or None if the hook changed nothing."""
    return next((stage for stage in made.stages if stage.name.after.startswith(_HOOK)), None)


def look_up(plan: Plan, made: DumpedModule, final: Module) -> tuple[Request, ...]:
    """Return the outcome in ``final``, the last stage of ``made``, of the pairs that ``plan`` was
    to fuse or keep apart. Changed rules and passes need no check: ``plan`` was made with them.
    """
    changes = plan.changes
    if not (changes.allowed or changes.forbidden):
        return ()
    modules = [(step.pass_name, step.module) for step in plan.steps]
    hook = find_hook(made)
    behind = made.stages[made.stages.index(hook) + 1 :] if hook is not None else made.stages
    modules += [(_pass_of(stage), made.read(stage)) for stage in behind if not stage.is_final]
    modules.append(("the last passes", final))
    numbering = Numbering()
    before = numbering.number(plan.before)
    pairs = find_pairs(before, [(name, numbering.number(each)) for name, each in modules])
    allowed = [
        Request(f"allow {each}", _apart(plan, _pick(plan, each, pairs))) for each in changes.allowed
    ]
    forbidden = [
        Request(f"forbid {each}", _together(_pick(plan, each, pairs))) for each in changes.forbidden
    ]
    return (*allowed, *forbidden)


def _pass_of(stage: Stage) -> str:
    """Return the pass before ``stage``, or the pipeline that starts with it."""
    return stage.label if stage.name.after == _START else stage.name.after


def _pick(plan: Plan, pattern: PairPattern, pairs: tuple[Pair, ...]) -> list[Pair]:
    names = {
        (operand.name, instruction.name)
        for instruction in MutableModule(plan.before).walk()
        for slot, operand in enumerate(instruction.operands)
        if pattern.fits(FusionPair(operand, instruction, slot))
    }
    return [
        pair
        for pair in pairs
        if pair.outcome is not Outcome.GONE and (pair.producer.name, pair.consumer.name) in names
    ]


def _together(pairs: list[Pair]) -> str:
    return _list(f"{_words(p)} is fused by {p.stage}" for p in pairs if p.outcome in TOGETHER)


def _apart(plan: Plan, pairs: list[Pair]) -> str:
    steps = [Replayed({s.pass_name: (s,)}, s.pass_name) for s in plan.steps]

    def why(pair: Pair) -> str:
        for step in reversed(steps):
            reason = step.reason(step.main_pass, pair.producer.name, pair.consumer.name)
            if reason is not None:
                return f" ({reason.rule})"
        return ""

    return _list(
        f"{_words(p)} is not fused{why(p)}" for p in pairs if p.outcome is Outcome.NOT_FUSED
    )


def _words(pair: Pair) -> str:
    return f"{pair.producer.name} -> {pair.consumer.name}"


def _list(found: Iterator[str]) -> str:
    problems = list(found)
    more = len(problems) - _MOST
    return "; ".join([*problems[:_MOST], *([f"and {more} more"] if more > 0 else [])])
