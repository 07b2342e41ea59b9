"""The finding ``opportunities``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.opportunities.facts import Opportunity


def discover(module: FindingInput) -> tuple[Opportunity, ...]:
    """Return what could be faster; nothing unless a GPU or TPU is known, and no flags of another
    compiler.
    """
    if module.needs is None:
        return ()
    from fusionscope.findings.opportunities.find import find_opportunities

    is_gpu = module.module.backend == "gpu"
    return tuple(
        opportunity
        for opportunity in find_opportunities(module.needs, module.last.module)
        if is_gpu or "xla_gpu_" not in opportunity.advice
    )
