"""Rewrites hand-written text in the compiler's own form, with one instruction per line.

The compiler's parser allows nesting: an instruction in the place of an operand, and a computation
in the place of a computation's name. Both get lines and names here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

from fusionscope.errors import UnusableInput, quoted
from fusionscope.hlo.attributes import CALLS
from fusionscope.hlo.text import CLOSING, COMMENT, NAME, STRING, is_closed

_TOKEN = re.compile(
    rf"(?P<space>\s+|{COMMENT})|(?P<string>{STRING})"
    r"|(?P<group>\[[\w\s,<=?*]*\]|\{\s*\d[\d\s,]*\})"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<mark>[,=])"
    r"|(?P<word>(?:[^\s\"'()\[\]{},=/]+|/(?![/*]))+)|(?P<other>.)",
    re.DOTALL,
)
_BESIDE_MARKS = re.compile(r"\s*([\[\]{},<=?*])\s*")
_SECTIONS = frozenset({"FileNames", "FunctionNames", "FileLocations", "StackFrames"})
_LAYOUT = re.compile(r"\s*[\d:]")
_SPACE = re.compile(rf"\s+|{COMMENT}")
_INSTRUCTION = re.compile(rf"\s*(?:ROOT\s|%?{NAME}\s*=)")
_OPCODE = re.compile(r"(?!b\b)[a-z][a-z0-9\-]*")  # b() is the shape of a buffer


@dataclass(slots=True)
class _Part:
    """The part of the text that is being read: the module, a computation, or a nested
    instruction.

    ``words`` is the line under construction, ``start`` its place in the text, ``opcode`` its
    operation and ``key`` its last attribute. Among operands, ``operand`` is the index in ``words``
    at which the last one begins. ``brackets`` are the expected closing ones, with the places of the
    opening ones.
    """

    kind: str
    words: list[str] = field(default_factory=list)
    start: int = 0
    operand: int = 0
    opcode: str = ""
    key: str = ""
    previous: str = ""
    brackets: list[tuple[str, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, kind: str | None, token: str) -> None:
        """Append a token that is neither a space nor a bracket."""
        if kind == "group":
            token = _BESIDE_MARKS.sub(r"\1", token)
        elif kind == "string":  # a line break inside would end the line
            token = token.replace("\n", "\\n")
        self.words.append(token)
        self.previous = token
        if token == "," and self.operand and len(self.brackets) == 1:
            self.operand = len(self.words)


def desugar(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the lines of the same module, one instruction each, without comments.

    Also returns the line and column (from 1) in ``text`` of each of them. Raises ``UnusableInput``
    if brackets do not match or a string is not closed.
    """
    return _Desugarer(text).read()


class _Desugarer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0] + [newline.end() for newline in re.finditer("\n", text)]
        self.parts = [_Part("module")]
        self.names: set[str] = set()
        self.numbers: Counter[str] = Counter()

    def read(self) -> tuple[list[str], list[tuple[int, int]]]:
        part = self.parts[-1]
        for match in _TOKEN.finditer(self.text):
            kind, token = match.lastgroup, match[0]
            if kind == "space":
                if token[0] == "/" and not is_closed(token):
                    raise self._error("found '/*', expected the end of the comment", match.start())
                if part.words:
                    part.words.append(" ")
                continue
            if kind == "other":
                raise self._error(
                    f"found {quoted(token)}, expected the end of a string", match.start()
                )
            if not part.brackets:
                if kind == "word" and self._begins_line(part, token, match.end()):
                    self._flush(part)
                elif token == "=":
                    part.key = part.previous
            if not part.words:
                part.start = match.start()
            if kind == "open":
                part = self._open(part, token, match)
            elif kind == "close":
                part = self._close(part, token, match.start())
            else:
                part.add(kind, token)
        if len(self.parts) > 1 or part.brackets:
            raise self._error(
                "the text ends inside a computation or bracket, expected '}': is the file cut?",
                len(self.text),
            )
        self._flush(part)
        return part.lines, part.places

    def _begins_line(self, part: _Part, word: str, end: int) -> bool:
        """Return whether ``word``, outside of all brackets, is the first one of a line."""
        previous = part.previous
        is_name = word[0].isalpha() or word[0] in "_%"
        if part.kind == "computation":
            if not is_name or previous in (",", "=", "ROOT"):
                return False
            return word == "ROOT" or self._is_assigned(end)
        return (
            word in _SECTIONS
            or word == "ENTRY"
            or (is_name and previous not in (",", "=", "->", "ENTRY", "HloModule"))
        )

    def _is_assigned(self, end: int) -> bool:
        """Return whether ``=`` follows, after any spaces and comments."""
        while space := _SPACE.match(self.text, end):
            end = space.end()
        return self.text.startswith("=", end)

    def _open(self, part: _Part, token: str, match: re.Match[str]) -> _Part:
        """Handle an opening bracket. Return the part that continues after it."""
        if token == "{" and self._opens_computation(part, match.end()):
            opened = _Part("computation")
            if part.kind == "module":
                part.words.append("{")
                self._flush(part)
                opened.lines, opened.places = [part.lines.pop()], [part.places.pop()]
            self.parts.append(opened)
            return opened
        if token == "(" and part.kind != "module" and _OPCODE.fullmatch(part.previous):
            if not part.opcode:
                part.opcode = part.previous
                part.operand = len(part.words) + 1
            elif (
                part.operand
                and len(part.brackets) == 1
                and part.opcode not in ("constant", "parameter")
            ):
                nested = _Part("instruction", part.words[part.operand :], opcode=part.previous)
                del part.words[part.operand :]
                nested.operand = len(nested.words) + 1
                self.parts.append(nested)
                part = nested
        part.words.append(token)
        part.brackets.append((CLOSING[token], match.start()))
        part.previous = token
        return part

    def _opens_computation(self, part: _Part, end: int) -> bool:
        """Return whether the brace before ``end`` opens a computation."""
        if part.kind == "module":
            return (
                not part.brackets
                and part.previous not in ("", "=")
                and part.words[0] != "HloModule"
                and part.words[0] not in _SECTIONS
                and not _LAYOUT.match(self.text, end)
            )
        return (
            part.key in CALLS
            and bool(_INSTRUCTION.match(self.text, end))
            and all(closing == "}" for closing, _ in part.brackets)
        )

    def _close(self, part: _Part, token: str, place: int) -> _Part:
        """Handle a closing bracket. Return the part that continues after it."""
        if part.brackets:
            closing, opened = part.brackets.pop()
            if closing != token:
                raise self._error(
                    f"found '{token}', expected '{closing}' for the bracket of line "
                    f"{self._place(opened)[0]}",
                    place,
                )
            part.words.append(token)
            part.previous = token
            if part.brackets or part.kind != "instruction":
                if not part.brackets:
                    part.operand = 0
                return part
            name = self._new_name(f"{part.opcode}.anon")
            owner = next(outer for outer in reversed(self.parts) if outer.kind == "computation")
            owner.lines.append(f"  %{name} = {''.join(part.words).strip()}")
            owner.places.append(self._place(owner.start))
        else:
            if token != "}" or part.kind != "computation":
                raise self._error(f"found '{token}', which nothing opens", place)
            self._flush(part)
            module = self.parts[0]
            if self.parts[-2] is module:
                name = ""
                module.start = place
            else:
                name = self._new_name("_")
                part.lines = [f"%{name} {{", *part.lines, "}"]
                part.places = [self._place(part.start), *part.places, self._place(place)]
            module.lines += part.lines
            module.places += part.places
        self.parts.pop()
        outer = self.parts[-1]
        outer.previous = f"%{name}" if name else token
        outer.words.append(outer.previous)
        return outer

    def _flush(self, part: _Part) -> None:
        """End the line under construction."""
        if part.words:
            content = "".join(part.words).strip()
            part.lines.append(content if part.kind == "module" else f"  {content}")
            part.places.append(self._place(part.start))
            part.words.clear()
            part.opcode = part.key = ""

    def _new_name(self, name: str) -> str:
        """Return ``name``, with a number if the text already has that name."""
        if not self.names:
            self.names.update(re.findall(NAME, self.text))
        while True:
            number = self.numbers[name]
            self.numbers[name] += 1
            numbered = f"{name}.{number}" if number else name
            if numbered not in self.names:
                return numbered

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def _error(self, problem: str, offset: int) -> UnusableInput:
        line, column = self._place(offset)
        return UnusableInput(problem, line=line, column=column)
