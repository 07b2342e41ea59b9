"""The reasons for pairs in the compiler's own records, or in a replay of its rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule
from fusionscope.dump.fusion_explorer import Kind, RecordedDecision, with_fused
from fusionscope.hlo.search import reachable
from fusionscope.passes.plan import FusionPlan, PairDecision
from fusionscope.passes.rule import Number
from fusionscope.rules.messages import rule_of

if TYPE_CHECKING:
    from fusionscope.dump.priority_fusion import PriorityFusionRecord
    from fusionscope.gpu.cost.model import PairCost

_NEGATIVE = "pf-negative"
_ANY = "*"  # not the name of an instruction
# On TPUs, a run that only forms kernels with several results says so of each pair, and why it does
# not form one: of what keeps a pair apart, the runs before it say more.
_ONLY_SEVERAL_RESULTS = "Not fusing MOF at: "


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pair was not fused: a rule id and the compiler's message.

    ``numbers`` are those that a replay examined, with their names. ``cost`` is set if times were
    compared. ``is_guess`` is whether the reason comes from rules that may not be those of the
    compiler that made the dump. ``pass_name`` is the pass that decided, if it ran before the main
    fusion pass.
    """

    rule: str
    message: str
    numbers: tuple[tuple[str, Number], ...] = ()
    cost: PairCost | None = None
    is_guess: bool = False
    pass_name: str | None = None


class Evidence:
    """The reasons that records or a replay give, by the names before the fusion pass.

    A fusion that the pass forms inherits the place of the consumer that it grew from, so a decision
    on it as a producer applies to that consumer. Everything fused into it becomes a part of it, so
    a decision on it as a consumer applies to every part.
    """

    def __init__(self) -> None:
        self._origin: dict[str, str] = {}
        self._went_into: dict[str, list[str]] = defaultdict(list)
        # The last decision on each pair. Of two, the one with the larger key counts: whether it is
        # about fusing the pair at all, and its place in the order of all decisions.
        self._by_pair: dict[str, dict[str, tuple[tuple[bool, int], Reason]]] = defaultdict(dict)
        self._rules: dict[str, set[str]] = defaultdict(set)
        self._count = 0
        self._by_producer: dict[str, Reason] = {}

    def reason(self, producer: str, consumer: str) -> Reason | None:
        """Return why ``producer`` was not fused into ``consumer``, names before the pass; None if
        unknown.

        The last decision on the pair counts, or else the last one on the producer with all its
        consumers: PriorityFusion fuses a producer into all of them or none.
        """
        by_consumer = self._by_pair.get(producer)
        if by_consumer:
            parts = self._wholes(consumer) | {_ANY}
            fewer, more = (
                (parts, by_consumer) if len(parts) < len(by_consumer) else (by_consumer, parts)
            )
            reasons = [by_consumer[name] for name in fewer if name in more]
            if reasons:
                return max(reasons, key=lambda ranked_reason: ranked_reason[0])[1]
        return self._by_producer.get(producer)

    def direct_reason(self, producer: str, consumer: str) -> Reason | None:
        """Return why ``producer`` was not fused into ``consumer`` itself, regardless of what that
        became a part of later; None if unknown.
        """
        statement = self._by_pair.get(producer, {}).get(consumer)
        return statement[1] if statement is not None else None

    def rules_of(self, producer: str) -> frozenset[str]:
        """Return the rules that kept the producer out of any of its consumers."""
        return frozenset(self._rules.get(producer, ()))

    def _wholes(self, name: str) -> set[str]:
        """Return ``name`` and every fusion that it became a part of."""
        return {*reachable([name], lambda part: self._went_into.get(part, ()))}

    def _fused(self, producer: str | None, consumer: str, fusion: str) -> None:
        if fusion != consumer:
            self._origin[fusion] = self._origin.get(consumer, consumer)
            self._went_into[consumer].append(fusion)
        if producer is not None:
            self._went_into[producer].append(fusion)
            self._by_producer.pop(self._origin.get(producer, producer), None)

    def _refused(self, producer: str, consumer: str | None, reason: Reason) -> None:
        origin = self._origin.get(producer, producer)
        if consumer is None:
            self._by_producer[origin] = reason
        else:
            self._count += 1
            key = not reason.message.startswith(_ONLY_SEVERAL_RESULTS), self._count
            by_consumer = self._by_pair[origin]
            if consumer not in by_consumer or key > by_consumer[consumer][0]:
                by_consumer[consumer] = key, reason
            self._rules[origin].add(reason.rule)

    def add_decisions(self, decisions: Iterable[RecordedDecision]) -> None:
        """Read a Fusion Explorer record."""
        for decision, fused in with_fused(decisions):
            producer, consumer = decision.producer, decision.consumer
            if fused is not None and consumer is not None:
                self._fused(*fused, consumer)
            elif producer is not None and decision.kind in (
                Kind.REFUSED,
                Kind.INELIGIBLE,
                Kind.REJECTED,
            ):
                rule = rule_of(decision.reason, decision.pass_name)
                if decision.pass_name == "FusionMerger":  # has the last word on each pair
                    consumer = _ANY
                self._refused(producer, consumer, Reason(rule, decision.reason))

    def add_steps(self, record: PriorityFusionRecord) -> None:
        """Read a priority-fusion record, which only dumps for GPUs have."""
        from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority
        from fusionscope.reasons.estimates import Estimates

        estimates = Estimates()
        for step in record.steps:
            if isinstance(step, Fused):
                self._fused(step.producer, step.consumer, step.fusion)
                estimates.forget(step.fusion)
            elif isinstance(step, Ineligible):
                reason = Reason(rule_of(step.reason, "PriorityFusion"), step.reason)
                self._refused(step.producer, None, reason)
            elif isinstance(step, Priority):
                estimate = estimates.add(step)
                if estimate is not None and estimate.benefit_us < 0:
                    message = (
                        f"Negative benefit ({estimate.benefit_us:.6g} us): "
                        f"{estimate.fused_us:g} us fused, {estimate.unfused_us:g} us unfused"
                    )
                    self._refused(step.producer, None, Reason(_NEGATIVE, message))
                else:
                    origin = self._origin.get(step.producer, step.producer)
                    self._by_producer.pop(origin, None)

    def add_plan(self, plan: FusionPlan) -> None:
        """Collect the decisions of a replay."""
        latest: dict[str, PairDecision] = {}  # of each producer
        for pair_decision in plan.decisions:
            if latest.get(pair_decision.producer) is pair_decision:
                continue  # said again to a fusion that grew since
            latest[pair_decision.producer] = pair_decision
            if pair_decision.fusion is not None:
                self._fused(pair_decision.producer, pair_decision.consumer, pair_decision.fusion)
            else:
                decision = pair_decision.decision
                reason = Reason(
                    decision.rule, decision.message, decision.numbers, pair_decision.cost
                )
                self._refused(pair_decision.producer, pair_decision.consumer, reason)


def read_evidence(module: DumpedModule) -> Evidence | None:
    """Return the evidence in the records of ``module``, the Fusion Explorer's if there is one.

    None if there is no record. Raises ``UnusableInput`` if a record cannot be read.
    """
    explorer = module.fusion_explorer
    steps = module.priority_fusion
    if not explorer and steps is None:
        return None
    evidence = Evidence()
    for record in explorer:
        evidence.add_decisions(record.decisions)
    if steps is not None and not any(
        d.pass_name == "PriorityFusion" and d.kind is Kind.INELIGIBLE
        for record in explorer
        for d in record.decisions
    ):
        # Older Explorer records list only what was fused.
        evidence = Evidence()
        evidence.add_steps(steps)
    return evidence
