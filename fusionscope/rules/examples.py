"""Small modules that a rule decides or leaves, around each of its thresholds.

They are in ``example_files/``, one file per rule: the examples on its page, and its tests. Each
example begins with a line that describes it:

    // decides PRODUCER -> CONSUMER: why
    // leaves PRODUCER -> CONSUMER to ID: why

The names are those at the moment at which the pass comes to the pair. ``to ID``, the rule that
decides instead, is optional. A rule about single operations has one name only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEADING = re.compile(
    r"^// (decides|leaves) ([\w.\-]+)(?: -> ([\w.\-]+))?(?: to ([\w\-]+))?: (.+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One module of a rule's file. ``consumer`` is None for a rule about one operation."""

    is_decided: bool
    producer: str
    consumer: str | None
    instead: str | None
    why: str
    text: str


def read_examples(id: str) -> tuple[Example, ...]:
    """Return the examples of a rule, in the order of its file; none without a file."""
    file = Path(__file__).parent / "example_files" / f"{id}.hlo"
    if not file.is_file():
        return ()
    text = file.read_text(encoding="utf-8")
    found = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    return tuple(
        Example(
            is_decided=heading[1] == "decides",
            producer=heading[2],
            consumer=heading[3],
            instead=heading[4],
            why=heading[5],
            text=text[heading.end() : end].strip() + "\n",
        )
        for heading, end in zip(found, ends, strict=True)
    )
