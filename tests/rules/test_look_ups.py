"""What is looked up of a kernel that is alike is what would be computed of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.look_ups import differing_passes

from fusionscope.dump import open_dump
from fusionscope.gpu.structure import Structures
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo import parse

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


@pytest.mark.parametrize("name", ["h100/reductions", "h100/attention", "a100-xla-2023/updates"])
def test_replays_decide_the_same_without_look_ups(name: str) -> None:
    actual = [
        fusion_pass
        for module in open_dump(DUMPS / name).modules
        for fusion_pass in differing_passes(module)
    ]
    assert actual
    assert not [pass_name for pass_name, differs in actual if differs]


MODULE = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
max {
  c = f32[] parameter(0)
  d = f32[] parameter(1)
  ROOT larger = f32[] maximum(c, d)
}
one {
  p = f32[8] parameter(0)
  q = f32[8] exponential(p)
  ROOT r = f32[8] add(q, p)
}
same {
  p.1 = f32[8] parameter(0)
  q.1 = f32[8] exponential(p.1), metadata={op_name="another"}
  ROOT r.1 = f32[8] add(q.1, p.1)
}
other_order {
  p.2 = f32[8] parameter(0)
  q.2 = f32[8] exponential(p.2)
  ROOT r.2 = f32[8] add(p.2, q.2)
}
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  zero = f32[] constant(0)
  read = f32[] negate(zero)
  KINDS
  ROOT all = (f32[8], f32[8]) tuple(x, y)
}
"""
CASES = {
    "names and metadata": (
        "f = f32[8] fusion(x), kind=kLoop, calls=one",
        "g = f32[8] fusion(y), kind=kLoop, calls=same",
        True,
    ),
    "the order of operands inside": (
        "f = f32[8] fusion(x), kind=kLoop, calls=one",
        "g = f32[8] fusion(x), kind=kLoop, calls=other_order",
        False,
    ),
    "the kind of a fusion": (
        "f = f32[8] fusion(x), kind=kLoop, calls=one",
        "g = f32[8] fusion(x), kind=kInput, calls=one",
        False,
    ),
    "one operand twice": ("f = f32[8] add(x, y)", "g = f32[8] add(x, x)", False),
    "which two": ("f = f32[8] add(x, y)", "g = f32[8] add(y, x)", True),
    "an attribute": (
        "f = f32[4] slice(x), slice={[0:4]}",
        "g = f32[4] slice(x), slice={[4:8]}",
        False,
    ),
    "a called computation": (
        "f = f32[] reduce(x, zero), dimensions={0}, to_apply=add",
        "g = f32[] reduce(x, zero), dimensions={0}, to_apply=max",
        False,
    ),
    "a constant": (
        "f = f32[8] broadcast(zero), dimensions={}",
        "g = f32[8] broadcast(read), dimensions={}",
        False,
    ),
    "a layout": ("f = f32[2,4]{1,0} bitcast(x)", "g = f32[2,4]{0,1} bitcast(x)", False),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_numbers_mean_equal_structures(name: str) -> None:
    first, second, are_alike = CASES[name]
    text = MODULE.replace("KINDS", f"{first}\n  {second}")
    by_name: dict[str, MutableInstruction] = {
        instruction.name: instruction
        for instruction in MutableModule(parse(text)).entry.instructions
    }
    structures = Structures()
    assert (structures.of(by_name["f"]) == structures.of(by_name["g"])) is are_alike
