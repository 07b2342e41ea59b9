"""When the figures of the final module are known to be right."""

from __future__ import annotations

import pytest

from fusionscope.hlo import parse
from fusionscope.what_if.final_figures import FinalFigures

# Two kernels read two results of a conditional, one each, or one of them reads both.
AFTER = """HloModule example, is_scheduled=false

negate {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} negate(x)
}

add {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  ROOT z = f32[4]{0} add(x, y)
}

one {
  x = f32[4]{0} parameter(0)
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(x, x)
}

other {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} exponential(x)
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(x, y)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  is_one = pred[] parameter(1)
  both = (f32[4]{0}, f32[4]{0}) conditional(is_one, x, x),
    true_computation=one, false_computation=other
  a = f32[4]{0} get-tuple-element(both), index=0
  b = f32[4]{0} get-tuple-element(both), index=1
  c = f32[4]{0} fusion(a), kind=kLoop, calls=negate
  d = f32[4]{0} KERNEL
  ROOT e = (f32[4]{0}, f32[4]{0}) tuple(c, d)
}
"""
APART = AFTER.replace("KERNEL", "fusion(b), kind=kLoop, calls=negate")
TOGETHER = AFTER.replace("KERNEL", "fusion(a, b), kind=kLoop, calls=add")
COPIED = """  f = f32[4]{0} copy(x)
  ROOT e"""


@pytest.mark.parametrize(("is_copied", "is_certain"), [(False, True), (True, False)])
def test_copies_at_conditionals_are_not_predicted(is_copied: bool, is_certain: bool) -> None:
    """If the dump has copies that are not predicted, those of other readers are unknown."""
    after, changed = parse(APART), parse(TOGETHER)
    final = parse(APART.replace("  ROOT e", COPIED)) if is_copied else after
    figures = FinalFigures(final, after, "cpu", None)
    assert figures.predict(after).is_certain
    assert figures.predict(changed).is_certain == is_certain
