"""What a pass decided of each producer: held against the compiler's other record of the same."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.fusion_explorer import Kind
from fusionscope.dump.priority_fusion import Fused, Priority
from fusionscope.reasons.recorded_decisions import _Ledger, read_fusion_steps

H100 = Path(__file__).resolve().parents[2] / "samples" / "dumps" / "h100"
SCALE = {"ns": 1e-3, "us": 1.0, "ms": 1e3}


@pytest.mark.parametrize("program", ["concatenate", "reductions"])
def test_benefit_is_what_the_explorer_says(program):
    """It prints the whole benefit each time that it rejects a producer; the other record holds
    differences for those that wait."""
    (module,) = open_dump(H100 / program).modules
    message: dict[str, list[float]] = defaultdict(list)
    for record in module.fusion_explorer:
        for decision in record.decisions:
            if decision.kind is Kind.REJECTED:
                figure, unit = re.search(r"\((-[\d.]+)(ns|us|ms)\)", decision.reason).groups()
                message[decision.producer].append(float(figure) * SCALE[unit])
    ledger = _Ledger()
    actual: dict[str, list[float]] = defaultdict(list)
    for step in module.priority_fusion.steps:
        ledger.add(step)
        if isinstance(step, Priority):
            benefit = ledger.estimates.get(step.producer).benefit_us
            if benefit < 0:
                actual[step.producer].append(benefit)
    assert message.keys() == actual.keys() != set()
    for producer, benefits in message.items():
        assert actual[producer] == pytest.approx(benefits, abs=1e-4)


def test_updates_of_a_waiting_producer_add_up():
    ledger = _Ledger()
    for step in (
        Priority("p", ("c", "d"), 9.0, 10.0),  # waits, with 1 to gain
        Priority("p", ("c", "d"), 3.5, 3.0),  # half a microsecond of it is gone
        Priority("q", ("c",), 5.0, 4.0),  # does not wait
        Priority("q", ("c",), 4.0, 4.5),  # so this is complete
    ):
        ledger.add(step)
    assert ledger.estimates.get("p").benefit_us == pytest.approx(0.5)
    assert ledger.estimates.get("p").fused_us == 9.0
    assert ledger.estimates.get("q").benefit_us == pytest.approx(0.5)
    assert ledger.estimates.get("p").is_near_tie  # 5% of 10
    ledger.add(Priority("p", (), 1.0, 1.1))
    assert not ledger.estimates.get("p").is_near_tie
    ledger.add(Fused("p", "x", "p"))  # grows, and is estimated anew
    ledger.add(Priority("p", ("d",), 2.0, 8.0))
    assert ledger.estimates.get("p").benefit_us == 6.0


def test_steps_are_in_the_order_of_the_record():
    (module,) = open_dump(H100 / "softmax").modules
    steps = read_fusion_steps(module)["priority-fusion"]
    record = [step for step in module.priority_fusion.steps if isinstance(step, Fused)]
    assert [(s.producer, s.consumer, s.fusion) for s in steps] == [
        (s.producer, s.consumer, s.fusion) for s in record
    ]
    assert len(steps) == 2
