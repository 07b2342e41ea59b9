"""What the GPU compiler expects to gain by a fusion, as its record tells it bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from fusionscope.dump.priority_fusion import Priority


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the compiler expects of fusing a producer into all its consumers, microseconds.

    ``fused_us`` and ``unfused_us`` are its last complete figures; ``benefit_us`` is what they came
    to with the updates that it made since, which it records as differences.
    """

    fused_us: float
    unfused_us: float
    benefit_us: float

    @property
    def is_near_tie(self) -> bool:
        """Whether it gains or loses less than 5%."""
        return abs(self.benefit_us) <= _NEAR * max(self.fused_us, self.unfused_us)


_NEAR = 0.05


class Estimates:
    """The estimates of producers, as a record goes on.

    While a producer waits to be fused, the compiler records only how its figures change
    (xla/backends/gpu/transforms/priority_fusion.cc, UpdatePriorities).
    """

    def __init__(self) -> None:
        self._by_producer: dict[str, Estimate] = {}

    def get(self, producer: str) -> Estimate | None:
        return self._by_producer.get(producer)

    def forget(self, fusion: str) -> None:
        """What has grown is estimated anew."""
        self._by_producer.pop(fusion, None)

    def add(self, step: Priority) -> Estimate | None:
        """The estimate after one more step; None where its figures are none."""
        gain = step.unfused_us - step.fused_us
        known = self._by_producer.pop(step.producer, None)
        if not isfinite(gain):
            return None
        if known is not None and known.benefit_us >= 0:
            estimate = Estimate(known.fused_us, known.unfused_us, known.benefit_us + gain)
        else:
            estimate = Estimate(step.fused_us, step.unfused_us, gain)
        self._by_producer[step.producer] = estimate
        return estimate
