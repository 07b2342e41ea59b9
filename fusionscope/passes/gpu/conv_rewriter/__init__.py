"""Convolutions that cuDNN computes."""

from __future__ import annotations

from fusionscope.dump import DumpedModule, Stage

PASS_NAME = "cudnn-fused-convolution-rewriter"
FORWARD_TARGETS = ("__cudnn$convForward", "__cudnn$convBiasActivationForward")
_EARLIER = (PASS_NAME, "conv-rewriter")


def stage_after(module: DumpedModule) -> Stage | None:
    """Return the stage right after convolutions became calls, None if the dump lacks it."""
    stages = {stage.name.after: stage for stage in module.stages}
    return next((stages[name] for name in _EARLIER if name in stages), None)
