"""The finding ``opportunities``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.opportunities.facts import Opportunity


def discover(module: FindingInput) -> tuple[Opportunity, ...]:
    """Return what could be faster; nothing unless a GPU is known."""
    if module.needs is None:
        return ()
    from fusionscope.findings.opportunities.find import find_opportunities

    return find_opportunities(module.needs, module.last.module)
