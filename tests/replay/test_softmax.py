"""Of which pairs the softmax rewriter tells something."""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump.device import read_device
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.context import GpuTarget, PassContext
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.passes.gpu.softmax_fusion.rules import GPU_SOFTMAX
from fusionscope.versions.jaxlib_0_12.gpu import GPU_0_12

H100 = Path(__file__).parents[2] / "samples" / "devices" / "h100.txtpb"
_TEXT = """
HloModule normalization

larger {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] maximum(p, q)
}

ENTRY main {
  given = f32[128,512] parameter(0)
  first = f32[128,512] exponential(given)
  source = f32[128,512] reverse(first), dimensions={1}
  weights = f32[512] parameter(1)
  weighted = f32[128,512] broadcast(weights), dimensions={1}
  start = f32[] constant(-inf)
  largest = f32[128] reduce(source, start), dimensions={1}, to_apply=larger
  spread = f32[128,512] broadcast(largest), dimensions={0}
  scaled = f32[128,512] multiply(spread, weighted)
  ROOT shifted = f32[128,512] subtract(source, scaled)
}
"""


def test_pairs_inside_the_kernel_are_told_and_no_others():
    graph = MutableModule(parse(_TEXT))
    target = GpuTarget(device=read_device(H100.read_bytes(), H100.name), gpu_model=GPU_0_12)
    plan = pass_of(GPU_SOFTMAX).run(graph, PassContext(gpu=target))
    fused = {
        (decision.producer, decision.consumer)
        for decision in plan.decisions
        if decision.decision.allow
    }
    assert fused == {
        ("start", "largest"),
        ("largest", "spread"),
        ("spread", "scaled"),
        ("weighted", "scaled"),
        ("scaled", "shifted"),
    }
