"""What jaxlib 0.4.34 does in its own way."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.passes.gpu_before_priority_fusion.horizontal_fusion.rules import (
    HORIZONTAL_LOOP,
    Batch,
)

RELEASE = "0.4.34"
"""The one against whose dumps the rules were held."""


@dataclass(frozen=True, slots=True)
class BatchBehindFirst(Batch):
    """The limits leave out the first one."""

    def counts_first(self) -> bool:
        return False


HORIZONTAL_LOOP_0_4_34 = HORIZONTAL_LOOP.renamed("legacy-horizontal-loop-0.4.34").with_rule(
    BatchBehindFirst()
)
