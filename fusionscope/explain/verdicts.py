"""What the main fusion pass decided of each producer, and what it expected to gain."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump import DumpedModule
from fusionscope.dump.fusion_explorer import Kind
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, PriorityFusionRecord
from fusionscope.explain.evidence import ABOUT, FILE_NAMES


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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a pass decided of a producer: fused (into ``consumers``) or not, and why not.

    ``estimate`` is None where the record has none.
    """

    is_fused: bool
    consumers: tuple[str, ...]
    message: str
    estimate: Estimate | None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts by the producer's name before the pass, in the order in which they fell.

    ``pass_name`` are the names that files may use for the pass.
    """

    pass_name: tuple[str, ...]
    by_producer: dict[str, Verdict]


def read_verdicts(module: DumpedModule) -> Verdicts | None:
    """What the main fusion pass decided, by producer; None where nothing was recorded.

    A fusion that the pass makes keeps the name of the consumer that it grew from. Raises
    ``UnusableInput`` where a record cannot be read.
    """
    recorded = module.priority_fusion
    if recorded is not None:
        return Verdicts(FILE_NAMES["PriorityFusion"], _from_steps(recorded))
    ledger = _Ledger()
    for record in module.fusion_explorer:
        about: tuple[str, str] | None = None
        for decision in record.decisions:
            if decision.pass_name != "InstructionFusion" or decision.consumer is None:
                continue
            if decision.kind in ABOUT and decision.producer is not None:
                about = decision.producer, decision.consumer
            elif decision.kind is Kind.FUSED and about is not None:
                ledger.fused(*about, decision.consumer)
                about = None
            elif decision.kind is Kind.REFUSED and decision.producer is not None:
                ledger.refused(decision.producer, decision.reason)
    if not ledger.verdicts:
        return None
    return Verdicts(FILE_NAMES["InstructionFusion"], ledger.verdicts)


def _from_steps(record: PriorityFusionRecord) -> dict[str, Verdict]:
    ledger = _Ledger()
    for step in record.steps:
        if isinstance(step, Fused):
            ledger.fused(step.producer, step.consumer, step.fusion)
        elif isinstance(step, Ineligible):
            ledger.refused(step.producer, step.reason)
        else:
            ledger.estimate(step)
    return ledger.verdicts


class _Ledger:
    """Verdicts as they fall. A later refusal does not undo that something was fused."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._origin: dict[str, str] = {}
        self._estimates: dict[str, Estimate] = {}

    def _name(self, name: str) -> str:
        return self._origin.get(name, name)

    def fused(self, producer: str, consumer: str, fusion: str) -> None:
        name = self._name(producer)
        known = self.verdicts.pop(name, None)
        earlier = known.consumers if known is not None and known.is_fused else ()
        consumers = (*earlier, self._name(consumer))
        self.verdicts[name] = Verdict(True, consumers, "", self._estimates.get(producer))
        self._origin[fusion] = self._name(consumer)
        self._estimates.pop(fusion, None)  # what has grown is estimated anew

    def refused(self, producer: str, message: str) -> None:
        name = self._name(producer)
        known = self.verdicts.pop(name, None)
        if known is None or not known.is_fused:
            known = Verdict(False, (), message, self._estimates.get(producer))
        self.verdicts[name] = known

    def estimate(self, step: Priority) -> None:
        """While a producer waits to be fused, the compiler records only how its figures change
        (xla/backends/gpu/transforms/priority_fusion.cc, UpdatePriorities)."""
        gain = step.unfused_us - step.fused_us
        known = self._estimates.get(step.producer)
        if known is not None and known.benefit_us >= 0:
            estimate = Estimate(known.fused_us, known.unfused_us, known.benefit_us + gain)
        else:
            estimate = Estimate(step.fused_us, step.unfused_us, gain)
        self._estimates[step.producer] = estimate
        if estimate.benefit_us < 0:
            self.refused(step.producer, "estimated slower")
