"""The finding ``advisories``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.advisories.facts import Advisory


def discover(analysis: FindingInput) -> tuple[Advisory, ...]:
    """Return the known faults of the compiler that concern the module."""
    from fusionscope.findings.advisories.find import find_advisories

    with suppress(UnusableInput):  # the dump itself reports a damaged stage
        return find_advisories(analysis.module, analysis.last.module)
    return ()
