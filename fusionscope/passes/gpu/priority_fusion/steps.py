"""Steps of an earlier run of priority fusion, which are taken again without asking why."""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.passes.gpu.priority_fusion.computation import ComputationRun, Step
from fusionscope.passes.gpu.triton_fusion import set_triton_config


class GivenRun(ComputationRun):
    """The pass in one computation, by the steps that it took there before."""

    def run(self, steps: Sequence[Step]) -> None:
        by_age = {self._ages.of(member): member for member in self._computation.instructions}
        for step in steps:
            producer = by_age[step.producer]
            for consumer, kind, tiling in step.consumers:
                fusion = self._fuse(
                    producer, by_age[consumer], kind, writes_producer=step.writes_producer
                )
                by_age[self._ages.of(fusion)] = fusion
                if tiling is not None:
                    set_triton_config(fusion, tiling)
            if producer.opcode != "constant" and not producer.users:
                if producer.parent is not None:
                    self._computation.remove(producer)
                if producer.opcode == "fusion":
                    producer.fused.dissolve()
