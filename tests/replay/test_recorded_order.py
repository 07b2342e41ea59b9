"""What a replay takes from a record: orders that follow from threads and from earlier passes."""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump.device import read_device
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority
from fusionscope.gpu.cost.duration import Duration, microseconds
from fusionscope.gpu.cost.numbers import f32
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.gpu.priority_fusion.record import undecided_order
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion, RecordedOrder
from fusionscope.passes.plan import Scored
from fusionscope.versions.jaxlib_0_12.gpu import GPU_0_12

# Both products read a softmax first, and operands of the same shapes. The compiler holds the two
# pairs for the same and finds tiles for one, but the square reads less.
SOFTMAXES = """
HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

first_softmax {
  x = f32[512,1024]{1,0} parameter(0)
  zero = f32[] constant(0)
  powers = f32[512,1024]{1,0} exponential(x)
  total = f32[512]{0} reduce(powers, zero), dimensions={1}, to_apply=add
  each = f32[512,1024]{1,0} broadcast(total), dimensions={0}
  ROOT share = f32[512,1024]{1,0} divide(powers, each)
}

second_softmax {
  x.1 = f32[512,1024]{1,0} parameter(0)
  zero.1 = f32[] constant(0)
  powers.1 = f32[512,1024]{1,0} exponential(x.1)
  total.1 = f32[512]{0} reduce(powers.1, zero.1), dimensions={1}, to_apply=add
  each.1 = f32[512,1024]{1,0} broadcast(total.1), dimensions={0}
  ROOT share.1 = f32[512,1024]{1,0} divide(powers.1, each.1)
}

ENTRY main {
  p = f32[512,1024]{1,0} parameter(0)
  q = f32[512,1024]{1,0} parameter(1)
  r = f32[512,1024]{1,0} parameter(2)
  one = f32[512,1024]{1,0} fusion(p), kind=kCustom, calls=first_softmax, CONFIG
  two = f32[512,1024]{1,0} fusion(q), kind=kCustom, calls=second_softmax, CONFIG
  square = f32[512,1024]{1,0} multiply(one, one)
  product = f32[512,1024]{1,0} multiply(two, r)
  ROOT results = (f32[512,1024]{1,0}, f32[512,1024]{1,0}) tuple(square, product)
}
""".replace(
    "CONFIG",
    'backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":'
    '{"num_warps":"4","output_tiles":[{"sizes":["1","1024"]}],"num_ctas":1,"num_stages":1}}}',
)
CARD = Path(__file__).parents[2] / "samples" / "devices" / "h100.txtpb"


def fused_times(text: str, recorded: RecordedOrder | None = None) -> dict[str, Duration]:
    """Of the softmaxes, when they are scored first."""
    state = GpuState(read_device(CARD.read_bytes(), CARD.name), GPU_0_12)
    plan = PriorityFusion(
        graph=MutableModule(parse(text)), book=GPU_FUSION, state=state, recorded=recorded
    ).run()
    times: dict[str, Duration] = {}
    for event in plan.events:
        if isinstance(event, Scored) and event.producer in ("one", "two"):
            times.setdefault(event.producer, event.fused)
    return times


def test_the_pair_that_is_scored_first_decides_for_all_that_are_held_for_the_same() -> None:
    square = fused_times(SOFTMAXES.replace("multiply(two, r)", "multiply(two, two)"))["one"]
    product = fused_times(SOFTMAXES.replace("multiply(one, one)", "multiply(one, r)"))["two"]
    # As jaxlib 0.12.0.1 recorded, which gives both in the one module now one time, now the other.
    assert (microseconds(square), microseconds(product)) == (f32(2.29325), f32(2.91875))
    for first, second, time in (("one", "two", square), ("two", "one", product)):
        scored = {(first, 0): 0, (second, 0): 1}
        times = fused_times(SOFTMAXES, RecordedOrder({}, {}, scored))
        assert times == {first: time, second: time}


def test_of_a_record_only_what_nothing_decides_is_taken() -> None:
    steps = [
        Priority("b", ("c", "d"), 1.0, 2.0),
        Ineligible("a", "no"),
        Fused("fusion", "view", "d"),
        Fused("fusion.1", "view", "c"),
        Fused("fusion", "b", "fusion"),
        Priority("fusion", ("e",), 1.0, 2.0),
    ]
    order = undecided_order(steps)
    assert not order.producers
    assert order.pairs == {("view", "d"): 2, ("view", "c"): 3}
    assert order.scored == {("b", 0): 0, ("a", 0): 1, ("fusion of d", 0): 5}
