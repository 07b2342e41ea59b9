"""A condition of the compiler that is not met, in words."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.rules.pages import read_page
from fusionscope.words.section import Line, Tone, line


def condition_lines(rule: str, why: str, at: str | None) -> Iterator[Line]:
    """Yield what was found ``at`` an instruction, and what the page of ``rule`` advises."""
    yield line(f"{rule}: {why}{f' ({at})' if at else ''}")
    if lever := read_page(rule).lever:
        yield line(f"you can {lever}", Tone.HINT)
