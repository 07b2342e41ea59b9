"""Faults planted in kernels, and runs that are not alike."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest
from conformance.planted_faults import draw, judge

from fusionscope import DumpedModule, UnusableInput
from fusionscope.bisect.bisect import bisect
from fusionscope.bisect.fused_plan import FusedPlan
from fusionscope.bisect.reference import Against, Reference
from fusionscope.bisect.result import By
from fusionscope.bisect.trials import FIRST_RUNS, runs_needed
from fusionscope.dump import open_dump
from fusionscope.graph.mutable import MutableModule, replace_operand, to_module
from fusionscope.hlo import Module
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.running import ResultDifference
from fusionscope.rerun.workbench import Made

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


def dump(name: str) -> DumpedModule:
    (module,) = open_dump(CPU / name).modules
    return module


@with_jax
@pytest.mark.parametrize(
    ("name", "seed"), [("loop", 5), pytest.param("elementwise", 1, marks=pytest.mark.long)]
)
def test_a_planted_fault_is_found_and_nothing_else(name: str, seed: int, tmp_path: Path) -> None:
    module = dump(name)
    drawn = draw(FusedPlan(module, own_plan(module)), random.Random(seed))
    assert drawn is not None
    fault, least, _ = drawn
    actual = bisect(module, Reference(), alter=fault.plant, directory=tmp_path / "wrong")
    assert not actual.problem
    assert actual.shows_in == actual.runs
    assert judge(fault, least, actual) == (True, True)
    alone = [item.reproducer for item in actual.found if item.reproducer is not None]
    assert [item.problem for item in alone] == [""] * len(fault.places)
    # The fault of two places needs both.
    assert [item.differs for item in alone] == [len(alone) == 1] * len(alone)


def crashing(module: Module) -> Module:
    """Make an operation that the compiler cannot emit of each sum of a product in a kernel."""
    graph = MutableModule(module)
    for instruction in list(graph.walk()):
        if instruction.computation.is_fused and [
            instruction.opcode,
            *(o.opcode for o in instruction.operands),
        ][:2] == [
            "add",
            "multiply",
        ]:
            instruction.opcode = "cholesky"
            instruction.operands.pop().users.drop(instruction)
    return to_module(graph)


@with_jax
def test_a_crash_is_found_as_well() -> None:
    actual = bisect(dump("elementwise"), Reference(), alter=crashing, python=sys.executable)
    assert actual.crash
    assert not actual.problem
    (culprit,) = actual.found
    assert [operation.opcode for operation in culprit.operations] == ["multiply", "add"]


@with_jax
def test_what_is_wrong_in_some_runs_only(tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text(
        "unfused, runs = None, 0\n"
        "def is_wrong_every_other_time(results):\n"
        "    global unfused, runs\n"
        "    if unfused is None:\n"
        "        unfused = results[0]\n"
        "    runs += 1\n"
        "    return runs % 2 == 0 and bool((results[0] != unfused).any())\n"
    )
    predicate = f"{check}:is_wrong_every_other_time"
    reference = Reference(against=Against.PREDICATE, predicate=predicate)
    actual = bisect(dump("elementwise"), reference)
    assert 0 < actual.shows_in < actual.runs
    (culprit,) = actual.found
    assert [operation.opcode for operation in culprit.operations] == ["multiply", "add"]


def slow(module: Module) -> Module:
    """Compute a hundred tangents of each sum with a slice in a kernel."""
    graph = MutableModule(module)
    for instruction in list(graph.walk()):
        if [instruction.opcode, *(o.opcode for o in instruction.operands)][:2] == ["add", "slice"]:
            users, is_root = list(instruction.users), instruction.is_root
            output = instruction
            for _ in range(100):
                output = instruction.computation.make("tanh", instruction.shape, [output])
            for user in users:
                replace_operand(user, instruction, output)
            if is_root:
                instruction.computation.root = output
    return to_module(graph)


@with_jax
@pytest.mark.long
@pytest.mark.parametrize("by", [By.TIME, By.COMPILE_TIME])
def test_what_makes_it_slow(by: By) -> None:
    actual = bisect(dump("concatenate"), Reference(), by=by, alter=slow)
    assert not actual.problem
    assert actual.cost is not None
    assert actual.cost.without_s < actual.cost.whole_s
    for culprit in actual.found:
        opcodes = {operation.name: operation.opcode for operation in culprit.operations}
        ends = {(opcodes[pair.producer], opcodes[pair.consumer]) for pair in culprit.pairs}
        assert ends == {("slice", "add")}


def result(**facts: object) -> Made:
    names = {"dtype": "float32", "elements": 8, "is_equal": False, "epsilon": 2.0**-23} | facts
    return Made(1, (ResultDifference(**names),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "by_default", "to_the_bit", "loosely"),
    [
        (result(is_equal=True), False, False, False),
        (result(difference=2.0**-23), False, True, False),
        (result(difference=0.01), True, True, False),
        (result(difference=0.9), True, True, True),
        (result(difference=None), True, True, True),  # a number against none
        (result(difference=0.0), False, False, False),  # another NaN, or another zero
        (result(dtype="int32", epsilon=None, difference=0.01), True, True, False),
    ],
)
def test_what_is_wrong(output: Made, by_default: bool, to_the_bit: bool, loosely: bool) -> None:
    assert Reference().is_wrong(output) is by_default
    assert Reference(tolerance=0.0).is_wrong(output) is to_the_bit
    assert Reference(tolerance=0.1).is_wrong(output) is loosely
    predicate = Reference(against=Against.PREDICATE, predicate="check.py:f")
    assert not predicate.is_wrong(output)


def test_runs_that_show_a_rare_fault() -> None:
    assert runs_needed(FIRST_RUNS) == 1
    needed = [runs_needed(shows) for shows in range(1, FIRST_RUNS)]
    assert needed == sorted(needed, reverse=True)
    for shows, runs in enumerate(needed, 1):
        assert (1 - shows / FIRST_RUNS) ** runs <= 0.01 < (1 - shows / FIRST_RUNS) ** (runs - 1)


def test_a_program_for_an_absent_device_is_refused() -> None:
    (module,) = open_dump(CPU.parent / "h100" / "concatenate").modules
    with pytest.raises(UnusableInput, match="the GPU is not present"):
        bisect(module, Reference())
