"""The finding ``memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.findings.memory.facts import MemoryFacts


def discover(known: FindingInput) -> MemoryFacts | None:
    """Return the memory of the final stage; None if no file shows it."""
    from fusionscope.findings.memory.find import find_memory
    from fusionscope.findings.memory.savings import RefusedPairs

    refused = RefusedPairs(known.pairs, known.kernel_facts, known.details)
    return find_memory(known.module, known.last.module, refused, known.gpu)
