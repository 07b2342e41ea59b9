"""What the compiler did to a pair, read off its final module."""

from __future__ import annotations

import pytest

from fusionscope.experiments.cut import Cut
from fusionscope.experiments.program import CONSUMER, PRODUCER, Answer, find_answer, program_text
from fusionscope.hlo import parse

CUT = Cut(
    parse(
        """HloModule m

ENTRY e {
  x = f32[8]{0} parameter(0)
  p = f32[8]{0} exponential(x)
  c = f32[8]{0} negate(p)
  ROOT t = (f32[8]{0}) tuple(c)
}
"""
    ),
    "p",
    "c",
)
CONSTANT = Cut(parse("HloModule m\n\nENTRY e {\n  p = s32[3] constant({1, 2, 3})\n"
                     "  ROOT c = s32[3] negate(p)\n}\n"), "p", "c")  # fmt: skip
MADE = f'metadata={{op_name="{PRODUCER}"}}'
READ = f'metadata={{op_name="{CONSUMER}"}}'
JOINED = f"""fused {{
  a = f32[8] parameter(0)
  b = f32[8] exponential(a), {MADE}
  ROOT c = f32[8] negate(b), {READ}
}}

ENTRY e {{
  x = f32[8] parameter(0)
  ROOT k = f32[8] fusion(x), kind=kLoop, calls=fused, {READ}
}}
"""
APART = f"""fused {{
  a = f32[8] parameter(0)
  b = f32[8] bitcast(a), {MADE}
  ROOT c = f32[8] negate(b), {READ}
}}

ENTRY e {{
  x = f32[8] parameter(0)
  y = f32[8] exponential(x), {MADE}
  ROOT k = f32[8] fusion(y), kind=kLoop, calls=fused
}}
"""
NESTED = f"""inner {{
  a = f32[8] parameter(0)
  ROOT b = f32[8] exponential(a), {MADE}
}}

outer {{
  a = f32[8] parameter(0)
  b = f32[8] fusion(a), kind=kLoop, calls=inner
  ROOT c = f32[8] negate(b), {READ}
}}

ENTRY e {{
  x = f32[8] parameter(0)
  ROOT k = f32[8] fusion(x), kind=kLoop, calls=outer
}}
"""
SIBLINGS = f"""fused {{
  a = f32[8] parameter(0)
  b = f32[8] exponential(a), {MADE}
  c = f32[8] negate(a), {READ}
  ROOT t = (f32[8], f32[8]) tuple(b, c)
}}

ENTRY e {{
  x = f32[8] parameter(0)
  ROOT k = (f32[8], f32[8]) fusion(x), kind=kLoop, calls=fused
}}
"""
SIMPLIFIED = f"""ENTRY e {{
  x = f32[8] parameter(0)
  ROOT c = f32[8] negate(x), {READ}
}}
"""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (JOINED, Answer.FUSED),
        (NESTED, Answer.FUSED),
        (APART, Answer.NOT_FUSED),  # what moves a value in another kernel does not compute it
        (SIBLINGS, Answer.NOT_FUSED),
        (SIMPLIFIED, Answer.GONE),
    ],
)
def test_an_answer_is_whether_a_kernel_computes_the_consumer_from_the_producer(text, answer):
    assert find_answer(f"HloModule m\n\n{text}", CUT) is answer


def test_a_copy_that_no_program_can_have_is_found_by_its_shape():
    copied = Cut(
        parse(
            "HloModule m\n\nENTRY e {\n  x = f32[8,4]{0,1} parameter(0)\n"
            "  p = f32[8,4]{1,0} copy(x)\n  c = f32[8,4]{1,0} negate(p)\n"
            "  ROOT t = (f32[8,4]{1,0}) tuple(c)\n}\n"
        ),
        "p",
        "c",
    )
    text = program_text(copied, has_copies=False)
    assert " copy(" not in text and PRODUCER not in text and CONSUMER in text
    assert "{(f32[8,4]{0,1})->(f32[8,4]{1,0})}" in text
    output = f"""HloModule m

ENTRY e {{
  x = f32[8,4]{{0,1}} parameter(0)
  y = f32[SHAPE]{{1,0}} copy(x)
  ROOT c = f32[8,4]{{1,0}} negate(y), {READ}
}}
"""
    apart = find_answer(output.replace("SHAPE", "8,4"), copied, has_copies=False)
    assert apart is Answer.NOT_FUSED
    assert find_answer(output.replace("SHAPE", "4,4"), copied, has_copies=False) is Answer.GONE
    assert find_answer(output.replace("SHAPE", "8,4"), copied) is Answer.GONE


def test_a_constant_is_found_by_its_shape():
    inside = f"""HloModule m

fused {{
  a = s32[SIZE] constant({{...}})
  ROOT c = s32[SIZE] negate(a), {READ}
}}

ENTRY e {{
  ROOT k = s32[SIZE] fusion(), kind=kLoop, calls=fused
}}
"""
    assert find_answer(inside.replace("SIZE", "3"), CONSTANT) is Answer.FUSED
    assert find_answer(inside.replace("SIZE", "4"), CONSTANT) is Answer.NOT_FUSED
