"""Users in the order in which the stages before a pass leave them to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.replay.user_history import find_user_order

START = """
HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  b = f32[8]{0} exponential(x)
  c = f32[8]{0} tanh(x)
  d = f32[8]{0} add(a, b)
  ROOT e = f32[8]{0} add(d, c)
}
"""
# As the text of a later stage has the users of x, and as the compiler does.
CASES = {
    "nothing": (START, ["a", "b", "c"]),
    # What is gone leaves its place to the last one.
    "removed": (
        START.replace("  a = f32[8]{0} negate(x)\n", "").replace("add(a, b)", "add(b, b)"),
        ["c", "b"],
    ),
    # A new one stands where the one did that it replaces.
    "replaced": (
        START.replace("a = f32[8]{0} negate(x)", "f = f32[8]{0} cosine(x)").replace(
            "add(a, b)", "add(f, b)"
        ),
        ["f", "b", "c"],
    ),
    # One that replaces nothing comes last; what nothing reads is still there.
    "added": (
        START.replace("  b = ", "  f = f32[8]{0} cosine(x)\n  b = ").replace(
            "add(d, c)", "subtract(d, f)"
        ),
        ["a", "b", "c", "f"],
    ),
    "renamed": (
        START.replace("a =", "a.0 =").replace("add(a,", "add(a.0,"),
        ["a.0", "b", "c"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_users_keep_the_order_that_passes_leave(case: str, tmp_path: Path) -> None:
    later, expected = CASES[case]
    passes = ("pipeline-start.before_algsimp", "algsimp.before_variadic-op-splitter")
    for number, (text, name) in enumerate(zip((START, later), passes, strict=True)):
        (tmp_path / f"module_0001.m.{number:04}.fusion.after_{name}.txt").write_text(text)
    (module,) = open_dump(tmp_path).modules
    assert find_user_order(module, module.stages[-1])["x"] == expected


def test_a_stage_that_cannot_be_read_leaves_nothing_known(tmp_path: Path) -> None:
    for number, text in enumerate(("HloModule m\n\nENTRY main {", START)):
        name = f"module_0001.m.{number:04}.fusion.after_pipeline-start.before_algsimp.txt"
        (tmp_path / name).write_text(text)
    (module,) = open_dump(tmp_path).modules
    assert find_user_order(module, module.stages[-1]) == {}
