"""The finding ``float8``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.float8.facts import Float8Product


def discover(analysis: FindingInput) -> tuple[Float8Product, ...]:
    """Return the products of 8-bit floats."""
    if analysis.module.backend != "gpu":
        return ()
    from fusionscope.findings.float8.find import find_products

    with suppress(UnusableInput):  # the dump itself reports a damaged stage
        return find_products(analysis.module, analysis.last.module)
    return ()
