"""Products that cuBLASLt computes."""

from __future__ import annotations

from fusionscope.dump import DumpedModule, Stage

PASS_NAME = "cublas-gemm-rewriter"
TARGET = "__cublas$lt$matmul"
FLOAT8_TARGET = "__cublas$lt$matmul$f8"
_PIPELINE, _START = "hlo_normalization", "pipeline-start"


def stage_after(module: DumpedModule) -> Stage | None:
    """Return the stage right after products became calls, None if the dump lacks it."""
    return next((s for s in reversed(module.stages) if s.name.after == PASS_NAME), None)


def stage_before(module: DumpedModule) -> Stage | None:
    """Return the stage before products become calls, None if the dump lacks it."""
    place = _PIPELINE, _START
    return next((s for s in module.stages if (s.name.pipeline, s.name.after) == place), None)
