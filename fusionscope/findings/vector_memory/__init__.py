"""The finding ``vector_memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.vector_memory.facts import VectorMemory


def discover(analysis: FindingInput) -> tuple[VectorMemory, ...]:
    """Return what kernels of a TPU take of its vector memory."""
    from fusionscope.findings.vector_memory.find import find_vector_memory

    return find_vector_memory(analysis.module, analysis.last.module)
