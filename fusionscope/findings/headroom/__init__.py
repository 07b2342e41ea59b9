"""The finding ``headroom``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.headroom.facts import Headroom


def discover(module: FindingInput) -> Headroom | None:
    """Return what limits the module; None unless a GPU is known."""
    if module.needs is None:
        return None
    from fusionscope.findings.headroom.find import find_headroom

    return find_headroom(module.needs)
