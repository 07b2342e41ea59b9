"""The facts shown for each pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusionscope.facts.result import CostFacts, FusedByLaterPass, Operation, PairFacts
from fusionscope.history.outcomes import Outcome, Pair
from fusionscope.hlo import Instruction
from fusionscope.reasons.evidence import Reason
from fusionscope.reasons.reasons import Reasons, Why
from fusionscope.reasons.titles import title_of
from fusionscope.rules.messages import UNKNOWN


def pair_facts(
    pair: Pair,
    runs: int,
    reasons: Reasons | None,
    later_passes: Mapping[str, str],
    operation_of: Callable[[Instruction], Operation],
) -> PairFacts:
    """``later_passes`` are passes that may fuse what an earlier pass refused, by stage."""
    if pair.outcome is Outcome.NOT_FUSED:
        why = Why(Reason(UNKNOWN, ""), None) if reasons is None else reasons.find(pair)
        return PairFacts(
            producer=operation_of(pair.producer),
            consumer=operation_of(pair.consumer),
            computation=pair.producer.computation.name,
            outcome=pair.outcome,
            kernel=None,
            stage=None,
            reason=why.reason.rule,
            message=why.reason.message or None,
            evidence=why.evidence,
            bytes_saved=pair.bytes_saved(runs),
            title=title_of(why.reason.rule),
            numbers=why.reason.numbers,
            otherwise=why.otherwise.rule if why.otherwise else None,
            cost=_cost(why.reason, pair),
            decided_by=why.reason.pass_name,
        )
    return PairFacts(
        producer=operation_of(pair.producer),
        consumer=operation_of(pair.consumer),
        computation=pair.producer.computation.name,
        outcome=pair.outcome,
        kernel=pair.kernel.name if pair.kernel else None,
        stage=pair.stage,
        reason=None,
        message=None,
        evidence=None,
        bytes_saved=pair.bytes_saved(runs),
        fused_by_later_pass=_fused_by_later_pass(pair, reasons, later_passes.get(pair.stage or "")),
    )


def _fused_by_later_pass(
    pair: Pair, reasons: Reasons | None, by: str | None
) -> FusedByLaterPass | None:
    if reasons is None or by is None:
        return None
    why = reasons.find(pair)
    if why.reason.rule == UNKNOWN:
        return None
    return FusedByLaterPass(
        reason=why.reason.rule,
        message=why.reason.message or None,
        evidence=why.evidence,
        by=by,
        title=title_of(why.reason.rule),
        numbers=why.reason.numbers,
    )


def _cost(reason: Reason, pair: Pair) -> CostFacts | None:
    if reason.cost is None:
        return None
    from fusionscope.reasons.costs import cost_facts  # loads the model of a GPU

    return cost_facts(reason.cost, pair.producer.name, pair.consumer.name)
