"""Reasons in a few words."""

from __future__ import annotations

from fusionscope.passes.causes import CAUSES
from fusionscope.passes.tpu.rules import TPU_RULES
from fusionscope.versions import known

# Of reasons that are not rules. Each completes "not fused:".
_TITLES = {
    **{cause.id: cause.title for cause in CAUSES},
    **{rule.id: rule.title for rule in TPU_RULES},
    "unknown": "reason not known",
    "pass-off": "a flag keeps the fusion pass from running",
    "base-regular-then-mof": "multi-output fusion is not possible either",
    "pf-mof": "several consumers, but only one could be fused",
    "mof-budget": "exceeds the limits of one kernel",
    "mof-pc-consumer": "a cycle, or too much code",
    "tri-constraints": "tile sizes that Triton does not support",
    "tri-exec": "no tiling fits",
    "tri-space": "no tiling can be derived",
    "gf-lone": "nothing to fuse with the dot",
    "leg-fm-bytes": "merging would move more bytes",
}


def title_of(reason: str) -> str | None:
    """Return the title of a rule or another reason; None if ``reason`` is unknown."""
    rule = known.find_rule(reason) if reason not in _TITLES else None
    return _TITLES.get(reason) if rule is None else rule.title
