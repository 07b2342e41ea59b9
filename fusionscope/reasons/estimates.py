"""The expected gain of a fusion, assembled from the records of the GPU compiler."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from fusionscope.dump.priority_fusion import Priority
from fusionscope.facts.clock import is_near_tie


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected times of fusing a producer into all its consumers, in microseconds.

    fused_us: time if it were fused into all its consumers, microseconds
    unfused_us: time if it were not
    benefit_us: what fusing it was expected to gain when the decision fell, with the updates that
        the compiler made since those figures
    """

    fused_us: float
    unfused_us: float
    benefit_us: float

    @property
    def is_near_tie(self) -> bool:
        """Return whether it gains or loses at most 5%."""
        return is_near_tie(self.benefit_us, max(self.fused_us, self.unfused_us))


class Estimates:
    """The estimates of producers at one point of a record.

    While a producer waits to be fused, the compiler records only how its figures change
    (xla/backends/gpu/transforms/priority_fusion.cc, UpdatePriorities).
    """

    def __init__(self) -> None:
        self._by_producer: dict[str, Estimate] = {}

    def get(self, producer: str) -> Estimate | None:
        return self._by_producer.get(producer)

    def forget(self, fusion: str) -> None:
        """Drop an estimate: the compiler makes a new one for a fusion that has grown."""
        self._by_producer.pop(fusion, None)

    def add(self, step: Priority) -> Estimate | None:
        """Return the estimate after one more step, or None if the step has no valid figures."""
        gain = step.unfused_us - step.fused_us
        earlier = self._by_producer.pop(step.producer, None)
        if not isfinite(gain):
            return None
        if earlier is not None and earlier.benefit_us >= 0:
            estimate = Estimate(earlier.fused_us, earlier.unfused_us, earlier.benefit_us + gain)
        else:
            estimate = Estimate(step.fused_us, step.unfused_us, gain)
        self._by_producer[step.producer] = estimate
        return estimate
