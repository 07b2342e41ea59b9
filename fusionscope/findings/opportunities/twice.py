"""Values that the forward pass and the gradient compute each, and that are better stored."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from fusionscope.facts.result import ModuleFacts
from fusionscope.findings.headroom.facts import Headroom
from fusionscope.findings.opportunities.facts import Opportunity, OpportunityKind
from fusionscope.findings.recomputed.facts import Recomputation, RecomputedValue
from fusionscope.words.text import first_names

_LEAST = 0.01  # of the time of the module: what gains less is not listed


def with_values_of_gradients(module: ModuleFacts) -> ModuleFacts:
    """Return ``module`` with these values among what could be faster, as one opportunity."""
    headroom, time = module.find(Headroom), module.summary.time
    values = list(_values(module)) if headroom is not None else []
    if time is None or not values:
        return module
    opportunity = _opportunity(values)
    if opportunity.gain_us < _LEAST * time.microseconds:
        return module
    opportunities = [*module.find_all(Opportunity), opportunity]
    opportunities.sort(key=lambda row: -row.gain_us)
    return module.with_finding(Opportunity, tuple(opportunities))


def _values(module: ModuleFacts) -> Iterator[RecomputedValue]:
    """Yield values of which no two are computed by one kernel: what each saves adds up."""
    recomputed = module.find(Recomputation)
    names = {kernel.name: kernel.op_name or "" for kernel in module.kernels}
    covered: set[str] = set()
    for value in recomputed.values if recomputed is not None else ():  # those that save most first
        passes = {"transpose(" in names.get(kernel, "") for kernel in value.kernels}
        if value.saved_ns and len(passes) > 1 and covered.isdisjoint(value.kernels):
            covered.update(value.kernels)
            yield value


def _opportunity(values: list[RecomputedValue]) -> Opportunity:
    where = first_names([value.value.name for value in values])
    return Opportunity(
        id=OpportunityKind.TWICE,
        what=f"values of the forward pass that kernels of the gradient compute again, {where}",
        where=where,
        source=next((value.source for value in values if value.source), None),
        time_us=fsum(value.before.time_ns or 0.0 for value in values) / 1_000,
        at_best_us=fsum(value.after.time_ns or 0.0 for value in values) / 1_000,
        bytes=max(0, sum(value.before.bytes_moved - value.after.bytes_moved for value in values)),
        parameters=(),
        advice="store them: jax.lax.optimization_barrier where they are computed",
    )
