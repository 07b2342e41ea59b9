"""The fusion passes of jaxlib 0.4.34 for GPUs."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import (
    HORIZONTAL_LOOP,
    Batch,
)
from fusionscope.versions.jaxlib_0_4_35 import gpu as newer


class BatchBehindFirst(Batch):
    """The limits leave out the first one."""

    __slots__ = ()

    def counts_first(self) -> bool:
        return False


HORIZONTAL_LOOP_0_4_34 = HORIZONTAL_LOOP.renamed("legacy-horizontal-loop-0.4.34").with_rule(
    BatchBehindFirst()
)

COMPILER = replace(newer.COMPILER, name="gpu-0.4.34", release="0.4.34").with_books(
    HORIZONTAL_LOOP_0_4_34
)
