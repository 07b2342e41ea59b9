"""Parts of a program that could be one kernel."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.facts.result import Branch, Breakdown, ModuleFacts
from fusionscope.findings.opportunities.facts import Opportunity, OpportunityKind

_LEAST = 0.05  # of the time of the module: what gains less is not listed


def with_parts(module: ModuleFacts, breakdown: Breakdown, whole: ModuleFacts) -> ModuleFacts:
    """Return ``module`` with the parts in ``breakdown`` among what could be faster. The kernels of
    ``whole`` are in the order by which the breakdown counts them.
    """
    opportunities = [*module.find_all(Opportunity), *_parts(breakdown, whole)]
    opportunities.sort(key=lambda opportunity: -opportunity.gain_us)
    return module.with_finding(Opportunity, tuple(opportunities)) if opportunities else module


def _parts(breakdown: Breakdown, whole: ModuleFacts) -> Iterator[Opportunity]:
    total = breakdown.tree.time_us
    for part in breakdown.lines:
        kernels = [whole.kernels[number] for number in part.kernels]
        is_part = len(kernels) > 1 and all(kernel.runs == 1 for kernel in kernels)
        opportunity = _opportunity(part) if is_part else None
        if opportunity is not None and opportunity.gain_us >= _LEAST * total:
            yield opportunity


def _opportunity(part: Branch) -> Opportunity | None:
    if part.at_best_us is None or part.is_rest:
        return None
    return Opportunity(
        id=OpportunityKind.ONE_KERNEL,
        what=f"{part.name} as several kernels",
        where=part.name,
        source=None,
        time_us=part.time_us,
        at_best_us=part.at_best_us,
        bytes=part.bytes_moved,
        parameters=(),
        advice="write it as one kernel, or find out below what was not fused",
    )
