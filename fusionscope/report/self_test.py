"""What held in a self-test, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.section import Entry, Section, Tone, line, ranked, spans

if TYPE_CHECKING:
    from fusionscope.study.self_test import SelfTest

_WORDS = {True: ("holds", Tone.GOOD), False: ("fails", Tone.BAD), None: ("not tried", Tone.WARNING)}


def sections_of(result: SelfTest) -> Iterator[Section]:
    checks = [
        Entry(
            label=check.name,
            name=spans(_WORDS[check.holds], f"  {check.details[0]}"),
            lines=tuple(map(line, check.details[1:])),
        )
        for check in result.checks
    ]
    block = ranked("check", checks, len(checks))
    yield Section(title=f"reruns on {result.device}", blocks=(block,), is_heading=True)
