"""Operations that can be one kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import UnusableInput, parse
from fusionscope.dump import open_dump
from fusionscope.rerun.plans import make_plan, require_start
from fusionscope.rules.changes import Changes
from fusionscope.tune.regions import find_regions

SUM = "sum {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT r = f32[] add(p, q)\n}"
CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"


def regions(body: str) -> list[set[str]]:
    module = parse(f"HloModule m\n\n{SUM}\n\nENTRY e {{\n{body}}}\n")
    return [set(region.members) for region in find_regions(module)]


def test_siblings_and_chains_are_one_region() -> None:
    actual = regions("""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] sine(x)
  b = f32[8] add(a, y)
  c = f32[8] cosine(x)
  d = f32[8] multiply(y, y)
  ROOT all = (f32[8], f32[8], f32[8]) tuple(b, c, d)
""")
    assert actual[0] == {"a", "b", "c", "d"}
    assert {"a", "b"} in actual  # connected


def test_what_has_to_run_between_is_not_in_the_middle() -> None:
    actual = regions(
        """
  x = f32[8] parameter(0)
  zero = f32[] constant(0)
  a = f32[8] sine(x)
  b = f32[8] cosine(a)
  total = f32[] reduce(b, zero), dimensions={0}, to_apply=%sum
  spread = f32[8] broadcast(total), dimensions={}
  c = f32[8] multiply(b, spread)
  ROOT d = f32[8] subtract(c, a)
"""
    )
    assert {"a", "b"} in actual
    assert {"spread", "c", "d"} in actual
    assert not any({"a", "c"} <= item for item in actual)


def test_moves_and_constants_come_along() -> None:
    actual = regions("""
  x = f32[4,2] parameter(0)
  y = f32[8] parameter(1)
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={}
  flat = f32[8] reshape(x)
  a = f32[8] add(flat, ones)
  b = f32[8] multiply(a, y)
  back = f32[8,1] reshape(b)
  ROOT both = (f32[8,1], f32[8]) tuple(back, ones)
""")
    assert {"one", "ones", "flat", "a", "b", "back"} in actual
    assert {"one", "ones", "flat", "a", "b"} in actual


@pytest.mark.parametrize("name", ["concatenate", "softmax", "loop", "elementwise"])
def test_every_region_is_a_kernel_of_a_plan(name: str) -> None:
    (module,) = open_dump(CPU / name).modules
    actual = list(find_regions(require_start(module)))
    refused = 0
    for region in actual:
        try:
            plan = make_plan(module, Changes(kernels=(region.members,)))
        except UnusableInput:
            refused += 1  # a parameter that the kernel would overwrite, for example
            continue
        assert len(plan.after.entry.instructions) > 0
    assert refused * 4 <= len(actual)


def test_moves_between_steps_come_along() -> None:
    actual = regions("""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] sine(x)
  b = f32[8] add(a, y)
  a1 = f32[1,8] reshape(a)
  b1 = f32[1,8] reshape(b)
  both = f32[2,8] concatenate(a1, b1), dimensions={0}
  first = f32[1,8] slice(both), slice={[0:1], [0:8]}
  c = f32[8] reshape(first)
  d = f32[8] cosine(c)
  ROOT e = f32[8] multiply(d, b)
""")
    assert actual[0] == {"a", "b", "a1", "b1", "both", "first", "c", "d", "e"}
