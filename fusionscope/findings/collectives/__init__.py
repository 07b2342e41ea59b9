"""The finding ``collectives``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.collectives.facts import Collective


def discover(analysis: FindingInput) -> tuple[Collective, ...]:
    """Return the collectives of the final module."""
    from fusionscope.findings.collectives.find import find_collectives, is_distributed

    with suppress(UnusableInput):  # the dump itself reports a damaged stage
        if is_distributed(analysis.last.module):
            return find_collectives(analysis.module, analysis.last.module, analysis.kernel_facts)
    return ()
