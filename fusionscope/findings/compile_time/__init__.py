"""The finding ``compile_time``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.compile_time.facts import CompileTime


def discover(known: FindingInput) -> CompileTime | None:
    """Return how long the passes took; None if the dump does not say."""
    from fusionscope.findings.compile_time.find import sum_up_passes

    with suppress(UnusableInput):  # the dump itself reports a damaged file
        return sum_up_passes(known.module.pass_times)
    return None
