import pytest

from fusionscope.dump.agreement import Agreement
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority
from fusionscope.hlo import parse
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record, steps_within
from fusionscope.passes.plan import Refused
from fusionscope.passes.rule import Decision

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


# Of 0.4.38 and 0.5.3, a mixture of normal distributions.
REASON = "Failed to compute symbolic tile for ()[s0] -> (s0 floordiv 7, s0 mod 7) for HLO "
REPLAYED = "%fusion.31 = bf16[90,7]{1,0} fusion(%fusion.32, %fusion.38), kind=kLoop, calls=%f.31"


@pytest.mark.parametrize(
    ("recorded", "count"),
    [
        (
            "%fusion.36 = bf16[90,7]{1,0} fusion(bf16[90,7]{1,0} %fusion.37, /*index=1*/bf16[90]{0}"
            ' %x), kind=kLoop, calls=%f.30, metadata={op_name="jit(f)/mul" source_line=1}',
            1,
        ),
        (REPLAYED.replace("fusion(%fusion.32, ", "fusion("), 0),
        (REPLAYED.replace("bf16[90,7]", "bf16[90,8]"), 0),
    ],
    ids=["names", "operands", "shape"],
)
def test_names_in_a_reason_are_not_compared(recorded, count):
    event = Refused("a", "b", Decision(False, "tri-space", REASON + REPLAYED))
    comparison = compare_with_record([event], [Ineligible("a", REASON + recorded)], ())
    assert comparison.reasons == Agreement(1, count)
