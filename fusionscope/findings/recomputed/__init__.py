"""The finding ``recomputed``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.recomputed.facts import Recomputation


def discover(known: FindingInput) -> Recomputation | None:
    """Return the values that several kernels compute; None if no pair is duplicated."""
    from fusionscope.history.outcomes import Outcome

    if all(pair.outcome != Outcome.DUPLICATED for pair in known.pairs):
        return None
    from fusionscope.findings.recomputed.find import find_recomputed

    return find_recomputed(
        known.first,
        known.last,
        known.kernels,
        known.module.backend,
        known.gpu,
        prices_all=known.prices_all,
    )
