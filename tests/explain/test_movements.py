"""Data movement: expected passes and causes are read off the stages of the dumps by hand."""

from pathlib import Path

import pytest
from sample_kinds import all_samples

from fusionscope.dump import open_dump
from fusionscope.explain import Selection, explain
from fusionscope.findings.movements.facts import Movement, MovementCause
from fusionscope.graph.layouts import transpose_is_bitcast
from fusionscope.history.operations import is_free_reshape
from fusionscope.hlo import Instruction

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"

COPY_INSERTION = "adding_copies_to_resolve_interference"


def movements(dump: str) -> dict[str, Movement]:
    """By the name of the instruction."""
    (module,) = explain(open_dump(DUMPS / dump), Selection(movements=True)).modules
    return {item.operation.name: item for item in module.find_all(Movement)}


def test_a_layout_that_a_library_call_reads():
    # Layout assignment copies kernel.1, f32[3,3,16,32]{3,2,1,0}, to {2,1,0,3} for the convolution;
    # layout normalization makes it a transpose.
    (actual,) = movements("h100/convolution").values()
    assert (actual.operation.opcode, actual.cause) == ("transpose", MovementCause.LAYOUT)
    assert (actual.made_by, actual.is_alone) == ("layout-assignment", True)
    assert actual.bytes_moved == 2 * 4 * 3 * 3 * 16 * 32
    assert actual.text == (
        "custom-call cudnn-conv-bias-activation.2 reads layout {2,1,0,3}, "
        "parameter kernel.1 has {3,2,1,0}"
    )
    assert actual.source == "samples/programs/convolution.py:10"  # of the call


def test_a_result_in_another_layout():
    actual = movements("h100/libraries")["transpose.5.1"]
    assert actual.made_by == "layout-assignment"
    assert actual.text.startswith("the program's result has layout {1,0}")
    assert not actual.is_alone and actual.bytes_moved == 0


def test_a_loop_and_its_buffers():
    actual = movements("cpu/loop")
    assert {item.made_by for item in actual.values()} == {COPY_INSERTION}
    assert {item.cause for item in actual.values()} == {MovementCause.LOOP}
    # The initial values of the state (s32[], f32[4096], f32[]).
    assert actual["copy.9"].text == "while.6 updates it in place: parameter signal.1 is not donated"
    assert actual["copy.10"].text == "while.6 updates it in place: constant.14 is a constant"
    # ynn_fusion computes the change from the old and the new f32[4096], which share a buffer.
    assert actual["copy.4"].text == (
        "while.6 writes the next value in its place before multiply_add_fusion, ynn_fusion read "
        "this one"
    )
    assert actual["copy.4"].bytes_moved == 100 * 2 * 4 * 4096  # at most a hundred steps


def test_nothing_is_listed_unless_it_was_requested(samples):
    assert Movement.finding not in samples.facts("cpu/loop").findings


@pytest.mark.parametrize("dump", all_samples())
def test_every_movement_of_a_final_module_is_listed_once(dump: Path, samples):
    opened = samples.dump(dump)
    modules = {module.number: module for module in opened.modules}
    for facts in explain(opened, Selection(all_modules=True, movements=True)).modules:
        module = modules[facts.number]
        final = module.last
        expected = sorted(
            instruction.name
            for computation in module.read(final).reachable()
            for instruction in computation.instructions
            if moves(instruction)
        )
        listed = [m for m in facts.find_all(Movement) if m.cause is not MovementCause.NOT_IN_PLACE]
        if final.name.counter is not None or len(module.stages) > 1:
            assert sorted(item.operation.name for item in listed) == expected
        labels = [stage.label for stage in module.stages]
        for item in listed:
            assert item.stage in labels and item.text
            assert (item.made_by is None) == (item.cause is MovementCause.PROGRAM)
            assert item.is_alone == (item.bytes_moved > 0)


def moves(instruction: Instruction) -> bool:
    if instruction.opcode == "transpose":
        order = tuple(instruction.attribute("dimensions"))
        return not transpose_is_bitcast(instruction.operands[0].shape, instruction.shape, order)
    if instruction.opcode == "reshape":
        return not is_free_reshape(instruction)
    return instruction.opcode in ("convert", "copy", "copy-start")
