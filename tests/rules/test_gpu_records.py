"""The replay of priority fusion takes each step that the compiler recorded, see records.py."""

from __future__ import annotations

import pytest
from conformance.records import DIFFERENT, Programs, all_programs, card, gpu_model_of, steps_of

from fusionscope.dump.device import Device
from fusionscope.dump.priority_fusion import PriorityStep
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record, recorded_order
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion
from fusionscope.passes.rule import Rule, RuleBook

pytestmark = pytest.mark.slow

# Each program once, for one device after the other; the others are repeated.
RECORDS = [
    pytest.param(
        programs,
        target,
        name,
        id=f"{programs.name}-{target}-{name}",
        marks=[pytest.mark.repeats] * ((row - column) % len(programs.targets) != 0),
    )
    for programs in all_programs()
    for column, target in enumerate(programs.targets)
    for row, name in enumerate(programs.texts)
]


def difference(
    text: str,
    steps: tuple[PriorityStep, ...],
    device: Device,
    gpu_model: GpuModel,
    book: RuleBook[Rule] = GPU_FUSION,
) -> tuple[str, str] | None:
    """The first step of replay and record that differs, if any.

    Where both orders of equals are possible, that of the record is followed.
    """
    module = parse(text)
    triton = [
        instruction.name
        for instruction in MutableModule(module).walk()
        if is_generic_triton(instruction)
    ]
    actual = None
    for order in (None, recorded_order(steps)):
        state = GpuState(device, gpu_model)
        plan = PriorityFusion(
            graph=MutableModule(module), book=book, state=state, recorded=order
        ).run()
        actual = compare_with_record(plan.events, steps, triton).first
        if actual is None:
            return None
    return actual


@pytest.mark.parametrize(("programs", "target", "name"), RECORDS)
def test_every_step_is_the_compilers(
    programs: Programs, target: str, name: str, request: pytest.FixtureRequest
) -> None:
    if programs.name in DIFFERENT:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT[programs.name], strict=True))
    steps = steps_of(programs.record(target))[name]
    text = programs.texts[name]
    assert difference(text, steps, card(target), gpu_model_of(programs)) is None


def test_the_records_are_those_of_all_modules() -> None:
    for programs in all_programs():
        for target in programs.targets:
            assert list(steps_of(programs.record(target))) == list(programs.texts)
