from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority
from fusionscope.hlo import parse
from fusionscope.passes.gpu.priority_fusion.record import steps_within

# What a softmax that could not be tiled leaves behind stands after the entry.
TEXT = """
HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  ROOT b = f32[8]{0} exponential(a)
}

nobodys {
  p = f32[8]{0} parameter(0)
  c = f32[8]{0} negate(p)
  d = f32[8]{0} exponential(c)
  ROOT e = f32[8]{0} tanh(d)
}
"""


def test_what_nothing_calls_is_no_part_of_the_module():
    local = [
        Priority("a", ("b",), 1.0, 2.0),
        Fused("fusion", "a", "b"),
        Ineligible("fusion", "No users to fuse"),
    ]
    remaining = [
        Priority("c", ("d",), 1.0, 2.0),
        Fused("fusion.1", "c", "d"),
        Priority("fusion.1", ("e",), 1.0, 2.0),
        Fused("fusion.2", "fusion.1", "e"),
        Ineligible("fusion.2", "No users to fuse"),
    ]
    assert steps_within(parse(TEXT), [*remaining[:2], *local, *remaining[2:]]) == local
