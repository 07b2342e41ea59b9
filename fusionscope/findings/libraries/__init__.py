"""The finding ``libraries``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.libraries.facts import Boundary


def discover(known: FindingInput) -> tuple[Boundary, ...]:
    """Return the library calls, without the members of their neighbours, which are kernels."""
    from fusionscope.findings.libraries.find import find_boundaries
    from fusionscope.findings.libraries.neighbours import without_members

    boundaries = find_boundaries(known.module, known.kernels, known.stages)
    return without_members(boundaries, known.kernel_facts)
