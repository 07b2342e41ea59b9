"""The recorded decisions of the main fusion pass on each producer, and the expected benefit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, dataclass

from fusionscope.dump import DumpedModule
from fusionscope.dump.fusion_explorer import Kind, with_fused
from fusionscope.dump.fusion_passes import PRIORITY_FUSION, Record, names_of_record
from fusionscope.dump.priority_fusion import Fused, Ineligible, PriorityStep
from fusionscope.facts.facts import Facts
from fusionscope.reasons.estimates import Estimate, Estimates


class FusionStep(Facts, frozen=True):
    """One recorded fusion: Times are those that the compiler expects of the producer with all its
    consumers, in microseconds as in ``Estimate``; None if the record has none.

    producer: what was fused
    consumer: what it was fused into
    fusion: the fusion that came out
    fused_us: the compiler's last estimate for the producer in a kernel with each of its consumers,
        microseconds
    unfused_us: the same for separate kernels
    benefit_us: what they came to with the updates since, which the compiler records as differences
    """

    producer: str
    consumer: str
    fusion: str
    fused_us: float | None = None
    unfused_us: float | None = None
    benefit_us: float | None = None


@dataclass(frozen=True, slots=True)
class ProducerDecision:
    """The decision on a producer: fused (into ``consumers``) or not, and why not.

    ``estimate`` is None if the record has none. ``turn`` is the number of fusions that the pass had
    formed before it fused this producer for the first time, or None if it never did.
    """

    is_fused: bool
    consumers: tuple[str, ...]
    message: str
    estimate: Estimate | None
    turn: int | None


@dataclass(frozen=True, slots=True)
class RecordedDecisions:
    """The last decision on each subject, by names before the pass.

    A subject is a producer if the pass decides on it with all of its consumers at once, and a
    producer with one consumer if it decides on each. ``pass_name`` are the names that files may use
    for the pass.
    """

    pass_name: tuple[str, ...]
    by_subject: dict[tuple[str, ...], ProducerDecision]


def read_recorded_decisions(module: DumpedModule) -> RecordedDecisions | None:
    """Return the decisions of the main fusion pass, or None if nothing was recorded.

    A fusion that the pass forms keeps the name of the consumer that it grew from. Raises
    ``UnusableInput`` if a record cannot be read.
    """
    recorded = module.priority_fusion
    if recorded is not None:
        ledger = _Ledger()
        for step in recorded.steps:
            ledger.add(step)
        return RecordedDecisions(names_of_record(Record.PRIORITY_FUSION), ledger.verdicts)
    ledger = _Ledger(by_pair=True)
    for record in module.fusion_explorer:
        own_decisions = (
            decision for decision in record.decisions if decision.pass_name == "InstructionFusion"
        )
        for decision, made_of in with_fused(own_decisions):
            if decision.consumer is None:
                continue
            if made_of is not None:
                ledger.fused(*made_of, decision.consumer)
            elif decision.kind is Kind.REFUSED and decision.producer is not None:
                ledger.refused(decision.producer, decision.reason, decision.consumer)
    if not ledger.verdicts:
        return None
    return RecordedDecisions(names_of_record(Record.INSTRUCTION_FUSION), ledger.verdicts)


def read_fusion_steps(module: DumpedModule) -> dict[str, tuple[FusionStep, ...]]:
    """Return the single fusions of each pass in the order in which it formed them, by the name of
    the pass in file names. Raises ``UnusableInput`` if a record cannot be read.
    """
    steps: dict[str, list[FusionStep]] = defaultdict(list)
    for record in module.fusion_explorer:
        for decision, made_of in with_fused(record.decisions):
            if made_of is not None and decision.consumer is not None:
                for name in names_of_record(decision.pass_name):
                    steps[name].append(FusionStep(*made_of, decision.consumer))
    recorded = module.priority_fusion
    if recorded is not None:
        ledger = _Ledger()
        fused: list[FusionStep] = []
        for step in recorded.steps:
            if isinstance(step, Fused):
                estimate = ledger.estimates.get(step.producer)
                times = astuple(estimate) if estimate is not None else ()
                fused.append(FusionStep(step.producer, step.consumer, step.fusion, *times))
            ledger.add(step)
        steps[PRIORITY_FUSION] = fused
    return {name: tuple(steps_of) for name, steps_of in steps.items()}


class _Ledger:
    """Decisions as they fall. A later refusal does not undo that something was fused.

    ``by_pair``: the pass decides about each consumer of a producer.
    """

    def __init__(self, *, by_pair: bool = False) -> None:
        self.verdicts: dict[tuple[str, ...], ProducerDecision] = {}
        self.estimates = Estimates()
        self._by_pair = by_pair
        self._origin: dict[str, str] = {}
        self._made = 0

    def add(self, step: PriorityStep) -> None:
        if isinstance(step, Fused):
            self.fused(step.producer, step.consumer, step.fusion)
        elif isinstance(step, Ineligible):
            self.refused(step.producer, step.reason)
        else:
            estimate = self.estimates.add(step)
            if estimate is not None and estimate.benefit_us < 0:
                self.refused(step.producer, "estimated slower")

    def _name(self, name: str) -> str:
        return self._origin.get(name, name)

    def _subject(self, producer: str, consumer: str | None) -> tuple[str, ...]:
        if self._by_pair and consumer is not None:
            return self._name(producer), self._name(consumer)
        return (self._name(producer),)

    def fused(self, producer: str, consumer: str, fusion: str) -> None:
        subject = self._subject(producer, consumer)
        verdict = self.verdicts.get(subject)
        earlier = verdict if verdict is not None and verdict.is_fused else None
        consumers = (*(earlier.consumers if earlier else ()), self._name(consumer))
        turn = earlier.turn if earlier else self._made
        estimate = self.estimates.get(producer)
        self.verdicts[subject] = ProducerDecision(True, consumers, "", estimate, turn)
        self._origin[fusion] = self._name(consumer)
        self.estimates.forget(fusion)
        self._made += 1

    def refused(self, producer: str, message: str, consumer: str | None = None) -> None:
        subject = self._subject(producer, consumer)
        verdict = self.verdicts.get(subject)
        if verdict is None or not verdict.is_fused:
            estimate = self.estimates.get(producer)
            self.verdicts[subject] = ProducerDecision(False, (), message, estimate, None)
