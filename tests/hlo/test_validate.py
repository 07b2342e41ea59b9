"""Operations whose attributes do not fit their operands are refused where they stand."""

from __future__ import annotations

import pytest

from fusionscope.errors import UnusableInput
from fusionscope.hlo import parse

TEXT = """HloModule m

f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[8,4]{{1,0}} parameter(0)
  z = f32[] constant(0)
  i = s32[] constant(1)
  ROOT x = {}
}}
"""


@pytest.mark.parametrize(
    "line",
    [
        "f32[2,4]{1,0} slice(p), slice={[0:8:4], [0:4]}",
        "f32[4,8]{0,1} transpose(p), dimensions={1,0}",
        "f32[9,8,4]{2,1,0} broadcast(p), dimensions={1,2}",
        "f32[9]{0} broadcast(z), dimensions={}",
        "f32[8]{0} reduce(p, z), dimensions={1}, to_apply=f",
        "f32[16,4]{1,0} concatenate(p, p), dimensions={0}",
        'f32[16,4]{1,0} concatenate(p, p), metadata={op_name="x"}, dimensions={0}',
        "f32[9,5]{1,0} pad(p, z), padding=0_1_0x-1_2",
        "f32[1,4]{1,0} dynamic-slice(p, i, i), dynamic_slice_sizes={1,4}",
        "f32[7,3]{1,0} reduce-window(p, z), window={size=2x2}, to_apply=f",
        "f32[8,8]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ],
)
def test_what_fits_is_read(line):
    parse(TEXT.format(line)).check()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("f32[2,4] slice(p)", "has no slice= of entries such as [0:8:2]"),
        ("f32[2,4] slice(p), slice={[0:8:4]}", "has 1 cuts, expected 2"),
        ("f32[2,4] slice(p), slice={[0:8:], [0:4]}", "found ']', expected an integer"),
        ("f32[2,4] slice(p), slice={[0:8:0], [0:4]}", "entries such as [0:8:2]"),
        ("f32[2] slice(p), slice={[0:2], [0:1]}", "has 1 sizes, expected 2"),
        ("f32[4,8] transpose(p), dimensions={1,1}", "names no dimensions, or one twice"),
        ("f32[4,8] transpose(p), dimensions={1,2}", "which an array of rank 2 has not"),
        ("f32[4] transpose(p), dimensions={1}", "has 1 dimensions, expected 2"),
        ("f32[9,8,4] broadcast(p), dimensions={1}", "has 1 dimensions, expected 2"),
        ("f32[9,8,4] broadcast(p), dimensions={1,3}", "which an array of rank 3 has not"),
        ("f32[8] reduce(p, z), dimensions={2}, to_apply=f", "which an array of rank 2 has not"),
        ("f32[] reduce(p, z), dimensions={1}, to_apply=f", "has 0 sizes, expected 1"),
        ("f32[8] reduce(p, z), dimensions={1}", "calls 0 computations, expected 1"),
        ("f32[16,4] concatenate(p, p), dimensions={7}", "which an array of rank 2 has not"),
        ("f32[16,4] concatenate(p, z), dimensions={0}", "has 0 sizes, expected 2"),
        ("f32[32] negate(p)", "has operands and a result of different ranks"),
        ("f32[9,5] pad(p, z)", "has no padding= of entries such as 1_1 or 1_1_0"),
        ("f32[9,5] pad(p, z), padding=0_1x0", "found the end, expected '_' as in 1_1"),
        ("f32[9,5] pad(p, z), padding=0_1", "has 1 paddings, expected 2"),
        ("f32[1,4] dynamic-slice(p, i, i, i)", "has 3 indices, expected 2"),
        ("f32[8,4] dynamic-update-slice(p)", "has 1 operands, expected at least 2"),
        ("f32[7,3] reduce-window(p, z), to_apply=f", "has no window="),
        (
            "f32[7,3] reduce-window(p, z), window={size=2}, to_apply=f",
            "has 1 sizes of its window, expected 2",
        ),
        ("f32[8,8] dot(p, p), lhs_contracting_dims={5}", "which an array of rank 2 has not"),
        ("f32[8,4] fusion(p), kind=kLoop", "calls 0 computations, expected 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_its_line(line, words):
    with pytest.raises(UnusableInput) as error:
        parse(TEXT.format(line), file="f.hlo").check()
    assert str(error.value).startswith("f.hlo:13:")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("", "has no index= of an element"),
        (", indgx=0", "has no index= of an element"),
        (", index=2", "has index=2, which a tuple of 2 has not"),
    ],
)
def test_an_element_that_a_tuple_has_not_is_refused_in_its_line(attributes, words):
    text = (
        "HloModule m\n\nENTRY e {\n  t = (f32[2], f32[3]) parameter(0)\n"
        f"  ROOT g = f32[2] get-tuple-element(t){attributes}\n}}\n"
    )
    with pytest.raises(UnusableInput, match=f"5:3: get-tuple-element g {words}"):
        parse(text)
