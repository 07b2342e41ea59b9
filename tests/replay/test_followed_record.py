"""A replay of priority fusion that follows the compiler's record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, PriorityStep
from fusionscope.graph.comparison import is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.gpu.priority_fusion import by_record
from fusionscope.passes.gpu.priority_fusion.record import followed_record
from fusionscope.passes.plan import FusionPlan
from fusionscope.reasons.replayed import replay_passes
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
OLDER = "../../tests/versions/dumps/h100-jaxlib-0.7"
NAMES = [
    "h100/attention", "h100/concatenate", "h100/loop", "h100/softmax", "b200/dense",
    f"{OLDER}/picked",  # a Triton fusion of two outputs
]  # fmt: skip

Change = Callable[[Sequence[PriorityStep]], Sequence[PriorityStep]]


def replayed(module: DumpedModule, change: Change | None) -> FusionPlan:
    """Return the replay by the changed record; by the rules if ``change`` is None."""
    context, recorded = read_context(module), module.priority_fusion
    assert context.gpu is not None
    assert recorded is not None
    run = next(run for run in find_runs(module) if run.pass_name == PRIORITY_FUSION)
    before, after = module.read(run.before), module.read(run.after or run.before)
    if change is not None:
        followed = followed_record(change(recorded.steps), before, after)
        context = replace(context, gpu=replace(context.gpu, followed=followed))
    graph = MutableModule(before)
    return replay(run.pass_name, before, context, choose_compiler(module).compiler, graph)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_leads_to_the_decisions_of_the_rules(name: str) -> None:
    (module,) = open_dump(DUMPS / name).modules
    by_rules, followed = replayed(module, None), replayed(module, list)
    assert followed.decisions == by_rules.decisions
    assert is_same(followed.graph, by_rules.module)
    assert followed.followed is not None
    assert followed.followed.steps > 0
    assert followed.followed.differing == 0


@pytest.mark.parametrize("name", NAMES)
def test_times_that_a_record_rounds_too_far_are_estimated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_record, "_MOST_EXACT", 0)
    (module,) = open_dump(DUMPS / name).modules
    assert replayed(module, list).decisions == replayed(module, None).decisions


def negative(steps: Sequence[PriorityStep]) -> int:
    """Return the place of the last score of a producer that would lose time."""
    return max(
        place
        for place, step in enumerate(steps)
        if isinstance(step, Priority) and step.fused_us > step.unfused_us
    )


def refused(steps: Sequence[PriorityStep]) -> list[PriorityStep]:
    """Return the steps, with a producer refused that would lose time."""
    place = negative(steps)
    return [*steps[:place], Ineligible(steps[place].producer, "?"), *steps[place + 1 :]]


def worthwhile(steps: Sequence[PriorityStep]) -> list[PriorityStep]:
    """Return the steps, with a producer that was not fused expected to save time."""
    place = negative(steps)
    return [*steps[:place], Priority(steps[place].producer, (), 1.0, 2.0), *steps[place + 1 :]]


def renamed(steps: Sequence[PriorityStep]) -> list[PriorityStep]:
    """Return the steps, with the first fusion that of an instruction which is not there."""
    place = next(place for place, step in enumerate(steps) if isinstance(step, Fused))
    gone = Fused("fusion.x", "missing", "missing.1")
    return [*steps[:place], gone, *steps[place:]]


def reasoned(steps: Sequence[PriorityStep]) -> list[PriorityStep]:
    """Return the steps, with another reason for the last refusal."""
    place = max(place for place, step in enumerate(steps) if isinstance(step, Ineligible))
    return [*steps[:place], Ineligible(steps[place].producer, "?"), *steps[place + 1 :]]


@pytest.mark.parametrize("change", [refused, worthwhile, renamed, reasoned])
def test_a_step_that_contradicts_rules_or_stage_is_counted(change: Change) -> None:
    (module,) = open_dump(DUMPS / "h100" / "concatenate").modules
    followed = replayed(module, change).followed
    assert followed is not None
    assert followed.differing == 1


def test_what_a_record_refuses_and_rules_allow_has_no_reason_of_the_rules() -> None:
    (module,) = open_dump(DUMPS / "h100" / "concatenate").modules
    assert module.priority_fusion is not None
    steps = module.priority_fusion.steps
    plan, unchanged = replayed(module, refused), replayed(module, list)
    producers = {decision.producer for decision in plan.decisions}
    assert steps[negative(steps)].producer not in producers
    decisions = [decision for decision in unchanged.decisions if decision.producer in producers]
    assert list(plan.decisions) == decisions


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("name", ["h100/cartpole", "h100/concatenate", "h100/loop"])
def test_only_the_pairs_that_are_left_are_decided(
    name: str, has_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusionscope.gpu.cost.model import CostModel

    (module,) = open_dump(DUMPS / name).modules
    if not has_ids:  # as in a dump of texts alone
        monkeypatch.setattr(DumpedModule, "instruction_ids", lambda *_: None)
    options: list[object] = []
    estimate = CostModel.time
    monkeypatch.setattr(
        CostModel, "time", lambda self, of: options.append(of) or estimate(self, of)
    )
    actual = replay_passes(module)
    assert actual is not None
    by_steps = len(options)
    replayed(module, None)
    assert by_steps < (len(options) - by_steps) / 2


def test_reasons_say_how_many_steps_of_a_record_were_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (module,) = open_dump(DUMPS / "h100" / "concatenate").modules
    unchanged = replay_passes(module)
    assert unchanged is not None
    assert unchanged.notes == ()
    record = module.priority_fusion
    assert record is not None
    changed = replace(record, steps=tuple(renamed(record.steps)))
    monkeypatch.setattr(DumpedModule, "priority_fusion", changed)
    actual = replay_passes(module)
    assert actual is not None
    (note,) = actual.notes
    assert note.startswith(f"1 of {len(changed.steps)} recorded steps of priority-fusion")
    assert actual.rules is not None
    assert unchanged.rules is not None
    assert actual.rules.plans == unchanged.rules.plans
