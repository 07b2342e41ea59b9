"""The finding ``epilogues``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.epilogues.facts import Epilogue


def discover(analysis: FindingInput) -> tuple[Epilogue, ...]:
    """Return the library calls that compute more than a product or a convolution, or could."""
    if analysis.module.backend != "gpu":
        return ()
    from fusionscope.findings.epilogues.find import find_epilogues

    with suppress(UnusableInput):  # the dump itself reports a damaged stage
        return find_epilogues(analysis.module)
    return ()
