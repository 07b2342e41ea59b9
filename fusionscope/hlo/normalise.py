"""Text as people write it, brought into the compiler's own form: one instruction a line."""

from __future__ import annotations

import re
from bisect import bisect_right

from fusionscope.errors import UnusableInput
from fusionscope.hlo.grammar import shorten
from fusionscope.hlo.text import STRING

_TOKEN = re.compile(
    rf"(?P<space>\s+|/\*.*?\*/|//[^\n]*)|(?P<string>{STRING})|(?P<open>[(\[{{])|(?P<close>[)\]}}])"
    rf"|(?P<mark>[,=])|(?P<word>[^\s\"'()\[\]{{}},=]+)|(?P<other>.)",
    re.DOTALL,
)
_SECTIONS = frozenset({"FileNames", "FunctionNames", "FileLocations", "StackFrames"})
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LAYOUT = re.compile(r"\s*[\d:]")
_ASSIGNED = re.compile(r"\s*=")


def normalise(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The same module with one instruction a line and no comments.

    Also returns line and column (from 1) in ``text`` of each line of the result. Raises
    ``UnusableInput`` where brackets do not match or a string is not closed.
    """
    starts = [0] + [found.end() for found in re.finditer("\n", text)]
    lines: list[str] = []
    positions: list[tuple[int, int]] = []
    current: list[str] = []
    current_start = 0
    previous = ""
    brackets: list[tuple[str, int]] = []
    in_body = False

    def place(offset: int) -> tuple[int, int]:
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def flush() -> None:
        if current:
            content = "".join(current).strip()
            lines.append(f"  {content}" if in_body else content)
            positions.append(place(current_start))
            current.clear()

    for found in _TOKEN.finditer(text):
        kind, token = found.lastgroup, found[0]
        if kind == "space":
            if current:
                current.append(" ")
            continue
        if kind == "other":
            line, column = place(found.start())
            raise UnusableInput(
                f"found {shorten(repr(token))}, expected the end of a string",
                line=line,
                column=column,
            )
        if not brackets and kind == "word":
            starts_new = (
                previous not in (",", "=", "ROOT") and bool(_ASSIGNED.match(text, found.end()))
                if in_body and token != "ROOT"
                else previous not in (",", "=")
                if in_body
                else token in _SECTIONS
                or token == "ENTRY"
                or (
                    previous not in (",", "=", "->", "ENTRY", "HloModule")
                    and (token[0].isalpha() or token[0] in "_%")
                )
            )
            if starts_new:
                flush()
        if not current:
            current_start = found.start()
        if kind == "close":
            if brackets:
                opened, at = brackets.pop()
                if _CLOSING[opened] != token:
                    line, column = place(found.start())
                    raise UnusableInput(
                        f"found '{token}', expected '{_CLOSING[opened]}' for the bracket of line "
                        f"{place(at)[0]}",
                        line=line,
                        column=column,
                    )
            elif in_body and token == "}":
                flush()
                in_body = False
                current_start = found.start()
            else:
                line, column = place(found.start())
                raise UnusableInput(
                    f"found '{token}', which nothing opens", line=line, column=column
                )
        current.append(token)
        if kind == "open":
            opens_body = (
                token == "{"
                and not in_body
                and not brackets
                and current[0] != "HloModule"
                and current[0] not in _SECTIONS
                and not _LAYOUT.match(text, found.end())
                and previous != "="
            )
            if opens_body:
                flush()
                in_body = True
            else:
                brackets.append((token, found.start()))
        previous = token
    if brackets or in_body:
        line, column = place(len(text))
        raise UnusableInput(
            "the text ends inside a computation or bracket, expected '}': is the file cut?",
            line=line,
            column=column,
        )
    flush()
    return "\n".join(lines) + "\n", tuple(positions) or ((1, 1),)
