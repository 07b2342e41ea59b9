"""Answers that an agent can afford to read: bounded in bytes, and with what to ask next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.markdown import to_markdown
from fusionscope.words.text import safe_lines

if TYPE_CHECKING:
    from fusionscope.words.section import Section

LARGEST_BYTES = 6_000  # of an answer
_MOST_NEXT = 4
_LONGEST_NEXT = 240  # characters: a longer name would be cut, and then be none


def answer(sections: Iterable[Section], problems: Sequence[str], next_calls: Iterable[str]) -> str:
    """Return sections and problems as an answer."""
    text = "\n".join([*to_markdown(sections), *(f"> {problem}" for problem in problems)])
    return bounded(text, next_calls)


def bounded(text: str, next_calls: Iterable[str]) -> str:
    """Return ``text``, cut at a line if it is too long, and the calls to make next."""
    text = safe_lines(re.sub(r"\n{2,}", "\n", text).strip())  # empty lines say nothing
    calls = [call for call in next_calls if call.isprintable() and len(call) <= _LONGEST_NEXT]
    end = "".join(f"\n- {call}" for call in dict.fromkeys(calls[:_MOST_NEXT]))
    end = f"\n\nAsk next:{end}" if end else ""
    data = text.encode("utf-8", errors="replace")
    room = LARGEST_BYTES - len(end.encode())
    if len(data) > room:
        notice = f"\n(cut: the whole answer has {len(data):,} bytes; ask for less of it)"
        head = data[: room - len(notice.encode())].decode("utf-8", errors="ignore")
        text = f"{head[: head.rfind(chr(10))] if chr(10) in head else head}{notice}"
    return f"{text}{end}"


def call(tool: str, **arguments: str) -> str:
    """Return a call of a tool, as an agent reads it."""
    words = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{tool}({words})"
