"""What a search tries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope import parse
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.rerun.plans import make_plan, own_plan
from fusionscope.rerun.programs import find_program
from fusionscope.tune.moves import MOVES, Move, find_rewritings, start_from

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"
LOOP = """HloModule m

condition {
  state = (s32[], f32[8]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  end = s32[] constant(12)
  ROOT less = pred[] compare(count, end), direction=LT
}

body {
  state = (s32[], f32[8]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(count, one)
  x = f32[8] get-tuple-element(state), index=1
  y = f32[8] sine(x)
  ROOT new = (s32[], f32[8]) tuple(next, y)
}

ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, x)
  ROOT end = (s32[], f32[8]) while(start), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.kind)
def test_candidates_are_plans_or_are_refused_in_one_line(move: Move) -> None:
    (module,) = open_dump(CPU / "concatenate").modules
    start = start_from(module, own_plan(module))
    actual = list(move.candidates(start))
    assert len(set(map(str, actual))) == len(actual)
    for item in actual:
        assert item.kind == move.kind
        try:
            make_plan(module, item.changes)
        except UnusableInput as refusal:
            assert "\n" not in str(refusal)
    if move.kind in ("pass", "one kernel", "rule", "pair"):
        assert actual


def test_changes_name_operations_as_before_fusion() -> None:
    (module,) = open_dump(CPU.parent / "h100" / "concatenate").modules
    start = start_from(module, own_plan(module))
    new = "tanh.1.0"  # as if a pass had made it since
    names = {name: f"{name}.before" for name in start.names if name != new}
    actual: list[str] = []
    for move in MOVES:
        for candidate in move.candidates(replace(start, names=names)):
            changes = candidate.changes
            for pattern in (*changes.allowed, *changes.forbidden):
                actual += [name for name in pattern if name != "*"]
            actual += [name for kernel in changes.kernels for name in kernel if name != new]
    assert actual
    assert all(name.endswith(".before") for name in actual)


def test_a_short_loop_is_unrolled_as_a_whole() -> None:
    (module,) = open_dump(CPU / "cartpole").modules
    program = find_program(module)
    unrolled = [
        rewriting
        for rewriting in find_rewritings(program, "cpu")
        if rewriting.candidate.change == "unroll"
    ]
    assert [str(item.candidate).partition(" at ")[0] for item in unrolled] == ["unroll by 5"]


def test_factors_of_a_loop_divide_its_steps() -> None:
    actual = [
        str(rewriting.candidate).split()[2]
        for rewriting in find_rewritings(parse(LOOP), "cpu")
        if rewriting.candidate.change == "unroll"
    ]
    assert actual == ["2", "3", "6", "12"]


def test_a_program_that_matches_no_recipe_is_not_rewritten() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] sine(x)\n}\n"
    assert not list(find_rewritings(parse(text), "cpu"))
