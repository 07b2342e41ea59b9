"""The examples on the page of a rule: small modules around each of its thresholds.

Each is a line that describes it, and a block of HLO text:

    **Refused** `PRODUCER` -> `CONSUMER`: why.
    **Allowed** `PRODUCER` -> `CONSUMER`: why.
    **Left to ID** `PRODUCER` -> `CONSUMER`: why.

The first two are decisions of the rule, the last one is left to another rule (``no rule`` if none
decides). **Not refused** and **Not allowed** leave open what decides instead. The names are those
at the moment at which the pass comes to the pair. A rule about single operations has one name only.

``...`` between two lines stands for lines that count from the first to the second, and in a list
(``x1, ..., x9``) for elements that do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_EXAMPLE = re.compile(
    r"^\*\*(Refused|Allowed|Not refused|Not allowed|Left to [\w -]+)\*\* "
    r"`([\w.\-]+)`(?:\s->\s`([\w.\-]+)`)?:\s([^`]+?)\.\n\n```hlo\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LIST = re.compile(r"(\w*?)(\d+), \.\.\., \1(\d+)")
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One module. ``verdict`` is the words before the names, ``consumer`` None for a rule about one
    operation, ``shown`` the HLO text as it is on the page.
    """

    verdict: str
    producer: str
    consumer: str | None
    why: str
    shown: str

    @property
    def is_decided(self) -> bool:
        return self.verdict in ("Refused", "Allowed")

    @property
    def is_allowed(self) -> bool:
        """Return whether the rule itself allows."""
        return self.verdict == "Allowed"

    @property
    def instead(self) -> str | None:
        """Return the rule that decides instead, ``none`` if no rule does, None if that is open."""
        _, left, rule = self.verdict.partition("Left to ")
        return rule.replace("no rule", "none") if left else None

    @property
    def text(self) -> str:
        """Return the HLO text without ellipses."""
        return expand(self.shown)


def find_examples(markdown: str) -> Iterator[Example]:
    """Yield the examples in a part of a page, in its order."""
    for verdict, producer, consumer, why, text in _EXAMPLE.findall(markdown):
        yield Example(
            verdict=verdict,
            producer=producer,
            consumer=consumer or None,
            why=" ".join(why.split()),
            shown=text,
        )


def expand(text: str) -> str:
    """Return HLO text with lines and elements of lists instead of each ellipsis."""
    lines = _LIST.sub(_elements, text).splitlines()
    full: list[str] = []
    for place, line in enumerate(lines):
        is_ellipsis = line.strip() == "..."
        full += _between(lines[place - 1], lines[place + 1]) if is_ellipsis else [line]
    return "\n".join([*full, ""])


def _elements(ends: re.Match[str]) -> str:
    name, first, last = ends.groups()
    return ", ".join([name + first, *_between(name + first, name + last), name + last])


def _between(first: str, last: str) -> Iterator[str]:
    """Yield the texts between two that differ in numbers only, all of which count up or down."""
    words = _NUMBER.split(first)
    ends = zip(map(int, words[1::2]), map(int, _NUMBER.findall(last)), strict=True)
    spans = [range(start, end, 1 if start < end else -1) for start, end in ends]
    count = max(map(len, spans))
    for step in range(1, count):
        words[1::2] = [str(span[step] if span else span.start) for span in spans]
        yield "".join(words)
