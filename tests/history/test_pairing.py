"""What may be matched by its name or by its neighbours, and what may not."""

import pytest

from fusionscope.history.matching import match
from fusionscope.hlo import parse

TEXT = """HloModule jit_f

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[4,8,16]) -> {result} {{
  %x = f32[4,8,16] parameter(0)
  %zero = f32[] constant(0)
  %{given} = f32[4,8,16] {opcode}(%x)
  %reduce.47.0 = {shape} reduce(%{given}, %zero), dimensions={{{dimensions}}}, to_apply=%add,
    metadata={{op_name="{op_name}"}}
  ROOT %convert.3 = {result} convert(%reduce.47.0)
}}
"""
ONE = {
    "given": "exp.1", "opcode": "exponential", "shape": "f32[4,8]", "result": "bf16[4,8]",
    "dimensions": "2", "op_name": "jit(f)/loss/reduce_sum",
}  # fmt: skip


def mate_of_the_reduction(**changed: str) -> str | None:
    first, second = (parse(TEXT.format(**fields)) for fields in (ONE, ONE | changed))
    matching = match(first, second)
    reduction = first.entry.instruction("reduce.47.0")
    actual = matching.after.get(reduction)
    return None if actual is None else actual.name


OTHER_SHAPE = {"shape": "f32[8,16]", "result": "bf16[8,16]", "dimensions": "0"}


@pytest.mark.parametrize("inputs", [{}, {"given": "tanh.1", "opcode": "tanh"}])
def test_an_automatic_name_is_no_evidence_against_shape_and_framework_name(inputs):
    op_name = "jit(f)/norm/reduce_max"
    assert mate_of_the_reduction(op_name=op_name, **OTHER_SHAPE, **inputs) is None


@pytest.mark.parametrize(
    "changed",
    [
        OTHER_SHAPE,
        {**OTHER_SHAPE, "op_name": "jit(g)/loss/reduce_sum"},  # the function has another name
        {**OTHER_SHAPE, "op_name": "jit(f)/jit(main)/loss/reduce_sum"},  # as jax wrote it before
        {"op_name": "jit(f)/norm/reduce_max", "given": "tanh.1", "opcode": "tanh"},
    ],
)
def test_one_of_them_alone_does_not_speak_against_it(changed):
    assert mate_of_the_reduction(**changed) == "reduce.47.0"
