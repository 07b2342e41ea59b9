"""The finding ``autotuned``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.autotuned.facts import Autotuned


def discover(analysis: FindingInput) -> tuple[Autotuned, ...]:
    """Return the instructions for which the compiler chose an implementation."""
    if analysis.module.backend != "gpu":
        return ()
    from fusionscope.findings.autotuned.find import find_autotuned

    with suppress(UnusableInput):  # the dump itself reports a damaged log
        return find_autotuned(analysis.module, analysis.kernel_facts)
    return ()
