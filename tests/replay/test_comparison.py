"""When two modules are the same, and when only their outputs stand in another order."""

import pytest

from fusionscope.graph.comparison import compare, find_divergence, has_equal_kernels
from fusionscope.hlo import Module, parse

TEXT = """
HloModule m

both {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  up = f32[8]{0} exponential(p)
  down = f32[8]{0} negate(q)
  ROOT results = (f32[8]{0}, f32[8]{0}) tuple(up, down)
}

alone {
  r = f32[8]{0} parameter(0)
  s = f32[8]{0} parameter(1)
  ROOT d = f32[8]{0} divide(r, s)
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  f = (f32[8]{0}, f32[8]{0}) fusion(x, y), kind=kLoop, calls=both
  first = f32[8]{0} get-tuple-element(f), index=0
  second = f32[8]{0} get-tuple-element(f), index=1
  ROOT g = f32[8]{0} fusion(first, second), kind=kLoop, calls=alone
}
"""
TURNED = (
    TEXT.replace("tuple(up, down)", "tuple(down, up)")
    .replace("index=0", "index=2")
    .replace("index=1", "index=0")
    .replace("index=2", "index=1")
)
OPERANDS = (
    TEXT.replace("fusion(x, y)", "fusion(y, x)")
    .replace("p = f32[8]{0} parameter(0)", "p = f32[8]{0} parameter(2)")
    .replace("q = f32[8]{0} parameter(1)", "q = f32[8]{0} parameter(0)")
    .replace("parameter(2)", "parameter(1)")
)


def has_same_kernels(first: Module, second: Module) -> bool:
    return compare(first, second).has_same_kernels()


@pytest.mark.parametrize("second", [TURNED, OPERANDS])
def test_outputs_and_operands_in_another_order_are_the_same_kernels(second: str) -> None:
    first, two = parse(TEXT), parse(second)
    assert find_divergence(first, two) is not None
    assert has_same_kernels(first, two)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("exponential(p)", "tanh(p)"),
        ("negate(q)", "negate(p)"),
        ("fusion(x, y)", "fusion(y, x)"),
        ("tuple(up, down)", "tuple(down, up)"),
        ("divide(r, s)", "divide(s, r)"),
        ("kind=kLoop, calls=both", "kind=kInput, calls=both"),
        ("ROOT g", "h = f32[8]{0} negate(first)\n  ROOT g"),
        (
            "down = f32[8]{0} negate(q)",
            "more = f32[8]{0} exponential(p)\n  down = f32[8]{0} add(q, more)",
        ),
    ],
)
def test_other_values_are_other_kernels(old: str, new: str) -> None:
    assert old in TEXT
    second = parse(TEXT.replace(old, new))
    if new.startswith("h ="):  # what nothing reads does not count
        assert has_same_kernels(parse(TEXT), second)
    else:
        assert not has_same_kernels(parse(TEXT), second)


APART = TEXT.replace(
    "f = (f32[8]{0}, f32[8]{0}) fusion(x, y), kind=kLoop, calls=both\n"
    "  first = f32[8]{0} get-tuple-element(f), index=0\n"
    "  second = f32[8]{0} get-tuple-element(f), index=1",
    "first = f32[8]{0} exponential(x)\n  second = f32[8]{0} negate(y)",
)


def test_the_same_values_in_other_kernels_are_not_the_same() -> None:
    assert "calls=both" not in APART
    assert not has_same_kernels(parse(TEXT), parse(APART))


def test_an_operation_computed_twice_counts_twice() -> None:
    twice = TEXT.replace(
        "ROOT results = (f32[8]{0}, f32[8]{0}) tuple(up, down)",
        "again = f32[8]{0} negate(q)\n"
        "  sum = f32[8]{0} add(down, again)\n"
        "  ROOT results = (f32[8]{0}, f32[8]{0}) tuple(up, sum)",
    )
    once = twice.replace("add(down, again)", "add(down, down)")
    assert not has_same_kernels(parse(twice), parse(once))


LOOP = """
HloModule loop

step {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  n = f32[8] negate(q)
  ROOT d = f32[8] divide(p, n)
}

body {
  s = (f32[8], f32[8], pred[]) parameter(0)
  a = f32[8] get-tuple-element(s), index=0
  b = f32[8] get-tuple-element(s), index=1
  c = pred[] get-tuple-element(s), index=2
  e = f32[8] fusion(a, b), kind=kLoop, calls=step
  ROOT t = (f32[8], f32[8], pred[]) tuple(e, b, c)
}

condition {
  s = (f32[8], f32[8], pred[]) parameter(0)
  ROOT c = pred[] get-tuple-element(s), index=2
}

ENTRY main {
  s = (f32[8], f32[8], pred[]) parameter(0)
  ROOT w = (f32[8], f32[8], pred[]) while(s), condition=condition, body=body
}
"""
# The same with the first two values that the loop carries in the other order.
CARRIED = (
    LOOP.replace("index=0", "index=9").replace("index=1", "index=0").replace("index=9", "index=1")
).replace("tuple(e, b, c)", "tuple(b, e, c)")


def test_where_kernels_stand_does_not_count() -> None:
    first, second = parse(LOOP), parse(CARRIED)
    assert not has_same_kernels(first, second)
    assert has_equal_kernels(first, second)
    assert has_equal_kernels(parse(TEXT), parse(OPERANDS))


@pytest.mark.parametrize(
    "second",
    [
        LOOP.replace("negate(q)", "abs(q)"),
        LOOP.replace("divide(p, n)", "divide(n, p)").replace("negate(q)", "negate(p)"),
        LOOP.replace("kind=kLoop", "kind=kInput"),
        LOOP.replace("tuple(e, b, c)", "tuple(e, again, c)").replace(
            "  ROOT t", "  again = f32[8] copy(b)\n  ROOT t"
        ),
    ],
)
def test_other_kernels_are_not_equal(second: str) -> None:
    assert not has_equal_kernels(parse(LOOP), parse(second))


def test_kernels_apart_are_not_equal() -> None:
    assert not has_equal_kernels(parse(TEXT), parse(APART))


def test_a_scalar_has_no_packed_elements() -> None:
    text = """
    HloModule m

    ENTRY main {
      one = s4[]{:E(4)} constant(1)
      ROOT many = s4[8]{0:E(4)} broadcast(one), dimensions={}
    }
    """
    first, scalar, array = map(
        parse, (text, text.replace("s4[]{:E(4)}", "s4[]"), text.replace("{0:E(4)}", "{0}"))
    )
    assert find_divergence(first, scalar) is None
    assert has_equal_kernels(first, scalar)
    assert find_divergence(first, array) is not None
    assert not has_equal_kernels(first, array)
