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


# A kernel takes the place of the parameter that it reads, or of one that another kernel reads.
DONATED = """HloModule example, input_output_alias={ {0}: (INDEX, {}, may-alias) }

negate {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} negate(x)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  a = f32[4]{0} fusion(x), kind=kLoop, calls=negate
  b = f32[4]{0} fusion(y), kind=kLoop, calls=negate
  ROOT c = (f32[4]{0}, f32[4]{0}) tuple(a, b)
}
"""
IN_PLACE = DONATED.replace("INDEX", "0")
LEFT_TO_ORDER = DONATED.replace("INDEX", "1")  # no copy if b runs before a, which reads x only
COPIED_IN_ORDER = LEFT_TO_ORDER.replace("  ROOT c", "  d = f32[4]{0} copy(a)\n  ROOT c")


@pytest.mark.parametrize(
    ("final", "before", "changed", "is_certain"),
    [
        (IN_PLACE, IN_PLACE, IN_PLACE, True),
        (IN_PLACE, IN_PLACE, LEFT_TO_ORDER, False),
        (LEFT_TO_ORDER, LEFT_TO_ORDER, LEFT_TO_ORDER, True),
        (LEFT_TO_ORDER, LEFT_TO_ORDER, IN_PLACE, True),
        (COPIED_IN_ORDER, LEFT_TO_ORDER, LEFT_TO_ORDER, False),
    ],
)
def test_copies_that_the_order_of_kernels_decides(
    final: str, before: str, changed: str, is_certain: bool
) -> None:
    """They are as in the dump if no more kernels have to be in order, and the dump's are."""
    figures = FinalFigures(parse(final), parse(before), "gpu", None)
    assert figures.predict(parse(changed)).is_certain == is_certain
