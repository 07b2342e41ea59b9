"""The check of an installation in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Section, Span, Table, Tone, lines

if TYPE_CHECKING:
    from fusionscope.doctor.doctor import Diagnosis

_TONES = {"works": Tone.GOOD, "limited": Tone.WARNING, "absent": Tone.QUIET, "broken": Tone.BAD}
_COLUMNS = (Column("what"), Column("state"), Column("found", wraps=True))


def sections_of(diagnosis: Diagnosis) -> Iterator[Section]:
    """Yield what works, what does not, and a verdict."""
    installation = diagnosis.installation
    texts = (
        f"rules: {', '.join(diagnosis.rules)}",
        f"compiles with {installation.path}, Python {installation.python}",
    )
    rows = tuple(
        (
            finding.name,
            Span(finding.state, _TONES[finding.state]),
            "; ".join(filter(None, (finding.found, finding.advice))),
        )
        for finding in diagnosis.findings
    )
    yield Section(
        title=f"fusionscope {diagnosis.fusionscope}, Python {diagnosis.python}",
        blocks=(lines(texts), Table(columns=_COLUMNS, rows=rows, has_head=False)),
        is_heading=True,
    )
    yield Section(blocks=(lines(*_verdict(diagnosis)),), is_heading=True)


def _verdict(diagnosis: Diagnosis) -> tuple[list[str], Tone]:
    broken, limited = (
        ", ".join(finding.name for finding in diagnosis.findings if finding.state == state)
        for state in ("broken", "limited")
    )
    if broken:
        return [f"broken: {broken}"], Tone.BAD
    works = "everything installed works"
    if limited:
        return [f"{works}, with limits: {limited}"], Tone.WARNING
    return [works], Tone.GOOD
