"""Reasons in a few words."""

from __future__ import annotations

from fusionscope.rules.pages import find_title

# Of reasons that are not rules. Each completes "not fused:".
_TITLES = {
    "unknown": "reason not known",
    "pass-off": "a flag keeps the fusion pass from running",
    "base-regular-then-mof": "multi-output fusion is not possible either",
    "pf-mof": "several consumers, but only one could be fused",
    "mof-budget": "exceeds the limits of one kernel",
    "mof-pc-consumer": "a cycle, or too much code",
    "tri-constraints": "tile sizes that Triton does not support",
    "tri-exec": "no tiling fits",
    "tri-space": "no tiling can be derived",
    "leg-fm-bytes": "merging would move more bytes",
}


def title_of(reason: str) -> str | None:
    """Return the title of a rule or another reason; None if ``reason`` is unknown."""
    return _TITLES.get(reason) or find_title(reason)
