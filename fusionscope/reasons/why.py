"""The refusal or the fusion of a pair in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.result import FusedByLaterPass, PairFacts


def why(pair: PairFacts) -> str:
    if pair.reason is None:
        kernel = f" in {pair.kernel}" if pair.kernel else ""
        stage = f", since {pair.stage}" if pair.stage else ""
        earlier = pair.fused_by_later_pass
        before = f"; before it {_earlier_refusal(earlier)}" if earlier else ""
        return f"{pair.outcome}{kernel}{stage}{before}"
    title = f": {pair.title}" if pair.title else ""
    evidence = f" ({pair.evidence})" if pair.evidence else ""
    otherwise = f", the replay says {pair.otherwise}" if pair.otherwise else ""
    by = f"{pair.decided_by} stopped here: " if pair.decided_by else ""
    return f"{by}{pair.reason}{title}{evidence}{otherwise}"


def _earlier_refusal(refusal: FusedByLaterPass) -> str:
    title = f": {refusal.title}" if refusal.title else ""
    evidence = f" ({refusal.evidence})" if refusal.evidence else ""
    return f"{refusal.reason}{title}{evidence}"
