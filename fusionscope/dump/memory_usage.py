"""The compiler's own total: ``*_after_optimizations-memory-usage-report.txt``."""

from __future__ import annotations

import re

from fusionscope.dump.files import as_text
from fusionscope.errors import UnusableInput

_TOTAL = re.compile(r"^Total bytes(?: used)?: (\d{1,18}) \(", re.MULTILINE)


def read_memory_usage(data: bytes, file: str) -> int:
    """Return the bytes of all memory spaces. Raises ``UnusableInput`` if it states none."""
    totals = _TOTAL.findall(as_text(data))
    if not totals:
        raise UnusableInput(
            "no line 'Total bytes: N', expected one for each memory space",
            file=file,
            hint="it is cut off or another file: dump the module again",
        )
    return sum(map(int, totals))
