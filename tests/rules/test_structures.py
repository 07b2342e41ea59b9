"""Sets of instructions that do the same."""

from __future__ import annotations

import pytest

from fusionscope.graph.mutable import MutableModule
from fusionscope.graph.structures import Structures
from fusionscope.hlo import parse

TWO_LAYERS = """HloModule layers

ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  scale = f32[] constant(2)
  scales = f32[8] broadcast(scale), dimensions={{}}
  a.1 = f32[8] sine(x)
  b.1 = f32[8] multiply(y, y)
  c.1 = f32[8] subtract(a.1, b.1)
  d.1 = f32[8] multiply(c.1, scales)
{second}
  ROOT both = (f32[8], f32[8]) tuple(d.1, d.2)
}}
"""
ANOTHER_ORDER = """
  b.2 = f32[8] multiply(x, x), metadata={op_name="elsewhere"}
  a.2 = f32[8] sine(d.1)
  c.2 = f32[8] subtract(a.2, b.2)
  other_scale = f32[] constant(2)
  other_scales = f32[8] broadcast(other_scale), dimensions={}
  d.2 = f32[8] multiply(c.2, other_scales)"""


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (("", ""), True),
        (("subtract(a.2, b.2)", "subtract(b.2, a.2)"), False),
        (("sine(d.1)", "cosine(d.1)"), False),
        (("multiply(x, x)", "multiply(x, y)"), False),
        (("multiply(x, x)", "multiply(x, d.1)"), False),
        (("sine(d.1)", "sine(b.2)"), False),
        (("constant(2)", "constant(3)"), False),
    ],
)
def test_a_set_is_what_it_does(change: tuple[str, str], is_same: bool) -> None:
    """Layers that share no input, in another order; then one that differs in one place."""
    graph = MutableModule(parse(TWO_LAYERS.format(second=ANOTHER_ORDER.replace(*change))))
    structures = Structures(graph)
    first, second = (
        structures.of([i for i in graph.walk() if i.name.endswith(layer)]) for layer in (".1", ".2")
    )
    assert (first == second) is is_same


def test_bodies_count_by_what_they_do() -> None:
    text = """HloModule bodies

add {{
  one = f32[] parameter(0)
  two = f32[] parameter(1)
  ROOT both = f32[] add(one, two)
}}

again {{
  left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT sum = f32[] {opcode}(left, right)
}}

ENTRY main {{
  x = f32[8] parameter(0)
  zero = f32[] constant(0)
  r.1 = f32[] reduce(x, zero), dimensions={{0}}, to_apply=add
  r.2 = f32[] reduce(x, zero), dimensions={{0}}, to_apply=again
  ROOT both = (f32[], f32[]) tuple(r.1, r.2)
}}
"""
    for opcode, is_same in (("add", True), ("maximum", False)):
        graph = MutableModule(parse(text.format(opcode=opcode)))
        structures = Structures(graph)
        first, second = (structures.of([i]) for i in graph.walk() if i.opcode == "reduce")
        assert (first == second) is is_same
