"""A replay of priority fusion with the scores of the record instead of the cost model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, PriorityStep
from fusionscope.gpu.cost.duration import TICKS_PER_MICROSECOND
from fusionscope.gpu.cost.numbers import f32
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.gpu.priority_fusion import record
from fusionscope.passes.gpu.priority_fusion.record import recorded_scores
from fusionscope.passes.gpu.priority_fusion.recorded_order import RecordDiffers
from fusionscope.passes.plan import FusionPlan
from fusionscope.reasons.replayed import replay_passes
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
NAMES = ["h100/attention", "h100/concatenate", "h100/loop", "h100/softmax", "b200/dense"]


def replayed(
    module: DumpedModule, change: Callable[[Sequence[PriorityStep]], Sequence[PriorityStep]] | None
) -> FusionPlan:
    """Return the replay with the scores of the changed record; by the rules if ``change`` is
    None.
    """
    context, recorded = read_context(module), module.priority_fusion
    assert context.gpu is not None
    assert recorded is not None
    if change is not None:
        scores = recorded_scores(change(recorded.steps))
        context = replace(context, gpu=replace(context.gpu, scores=scores))
    run = next(run for run in find_runs(module) if run.pass_name == PRIORITY_FUSION)
    graph = MutableModule(module.read(run.before))
    return replay(run.pass_name, graph.source, context, choose_compiler(module).compiler, graph)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_leads_to_the_decisions_of_the_rules(name: str) -> None:
    (module,) = open_dump(DUMPS / name).modules
    by_rules, by_record = replayed(module, None), replayed(module, list)
    assert by_record.decisions == by_rules.decisions
    assert str(by_record.module) == str(by_rules.module)


@pytest.mark.parametrize("name", NAMES)
def test_times_that_a_record_rounds_too_far_are_estimated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_MOST_EXACT", 0)
    (module,) = open_dump(DUMPS / name).modules
    assert replayed(module, list).decisions == replayed(module, None).decisions


def test_a_record_shows_each_tick_of_two_milliseconds() -> None:
    ticks = 2047 * TICKS_PER_MICROSECOND + 1
    printed = float(f"{f32(ticks / TICKS_PER_MICROSECOND):.9g}")
    (score,) = recorded_scores([Priority("a", ("b",), printed, printed)]).values()
    assert score.estimate == (ticks, ticks)


def refused(steps: Sequence[PriorityStep]) -> list[PriorityStep]:
    """Return the steps, with the first fused producer refused instead."""
    name = next(step.producer for step in steps if isinstance(step, Fused))
    return [
        Ineligible(name, "") if isinstance(step, Priority) and step.producer == name else step
        for step in steps
    ]


def scored(steps: Sequence[PriorityStep]) -> list[PriorityStep]:
    """Return the steps, with each refused producer expected to lose time instead."""
    return [
        Priority(step.producer, (), 2.0, 1.0) if isinstance(step, Ineligible) else step
        for step in steps
    ]


@pytest.mark.parametrize("change", [refused, scored, lambda steps: []])
def test_a_record_that_contradicts_the_rules_is_not_followed(
    change: Callable[[Sequence[PriorityStep]], Sequence[PriorityStep]],
) -> None:
    (module,) = open_dump(DUMPS / "h100" / "concatenate").modules
    with pytest.raises(RecordDiffers):
        replayed(module, change)


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(
    "name",
    ["h100/concatenate", "h100/loop", pytest.param("h100/cartpole", marks=pytest.mark.slow)],
)
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
    by_record = len(options)
    replayed(module, None)
    assert by_record < (len(options) - by_record) / 2
