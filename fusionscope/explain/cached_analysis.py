"""An analysis as the cache keeps it: the registry names the types of its findings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from msgspec import Struct, defstruct, structs

from fusionscope.facts.module_analysis import Analysis
from fusionscope.facts.result import Findings
from fusionscope.findings import fields_of_module


@cache
def cached_type() -> type[Struct]:
    """Return the type of what the cache keeps."""
    return defstruct("CachedAnalysis", [("whole", Analysis), ("findings", fields_of_module())])


def to_cache(analysis: Analysis) -> Struct:
    """Return what the cache keeps of an analysis."""
    findings = fields_of_module()(**analysis.facts.findings)
    return cached_type()(_with_findings(analysis, {}), findings)


def from_cache(cached: Any) -> Analysis:
    """Return the analysis that was kept."""
    findings = structs.asdict(cached.findings).items()
    return _with_findings(cached.whole, {name: facts for name, facts in findings if facts})


def _with_findings(analysis: Analysis, findings: Findings) -> Analysis:
    return replace(analysis, facts=replace(analysis.facts, findings=findings))
