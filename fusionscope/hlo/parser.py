"""HLO text becomes a module.

Dumps repeat themselves: the stages of one module share almost all of their lines, and lines share
almost all of their forms. So a ``ParseTable`` remembers what was read, computations by their text
and lines by their text, and new lines are read many at a time: one regular expression cuts them at
their joints, others take names, numbers and strings out of their attributes. What is left of an
attribute is its *skeleton*; the grammar (``grammars/hlo.lark``) reads each skeleton once. It also
says what is wrong with a line that cannot be cut.

Text that is not in the compiler's own form (one instruction a line, bodies indented) is first
brought into it, see ``normalise``.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from fusionscope.errors import UnusableInput
from fusionscope.hlo.attributes import cut_attributes
from fusionscope.hlo.grammar import check, shorten
from fusionscope.hlo.literals import check_literal
from fusionscope.hlo.model import Body, Module, Statement
from fusionscope.hlo.normalise import normalise
from fusionscope.hlo.shape import Shape, ShapeTable
from fusionscope.hlo.source import StackFrames
from fusionscope.hlo.text import BRACES, NAME, PARENTHESES, SHAPE, STRING, strip_comments

_LINE = re.compile(
    rf"^[ \t]*+(ROOT\s++)?+%?({NAME})\s*+=\s*+({SHAPE})\s*+([a-z][a-z0-9\-]*+)\s*+"
    rf"\(((?:[^()\"\n]++|{STRING}|{PARENTHESES})*+)\)[ \t]*+(,.*)?$",
    re.MULTILINE,
)
_HEADER = re.compile(rf"HloModule\s+%?({NAME})(.*)")
_OPENING = re.compile(
    rf"(ENTRY[ \t]+)?%?({NAME})[ \t]*(?:(\(.*\)[ \t]*->.*\S))?[ \t]*\{{[ \t]*$", re.MULTILINE
)
_SIGNATURE = re.compile(
    rf"\(\s*(?:%?{NAME}:\s*{SHAPE}\s*(?:,\s*%?{NAME}:\s*{SHAPE}\s*)*+)?\)\s*->\s*({SHAPE})"
)

_STRINGS = re.compile(STRING, re.DOTALL)
_CONFIGURATION = re.compile(rf"backend_config={BRACES}")
_NUMBERS_AND_NAMES = re.compile(rf"-?\d+(?:,\s*-?\d+)*+|(?<=%){NAME}")
_REPEATED = re.compile(r"(true|\{0?\}: \(0, \{0?\}(?:, [a-z-]+)?\))(?:, ?\1)+")
_SHAPES = re.compile(rf"{SHAPE}(?:,\s*{SHAPE})*+")

# An error message need not read more of a line than this.
_DIAGNOSED = 4000


class _Piece(NamedTuple):
    """What stands between two closing braces: the rest of a line, then a computation.

    ``opening`` and ``height`` count the lines before the one that opens it, and all of them.
    """

    footer: str
    body: Body | None
    is_entry: bool
    opening: int
    height: int


class ParseTable:
    """What was read once; share one between the stages of a dump."""

    def __init__(self) -> None:
        self.shapes = ShapeTable()
        self.pieces: dict[str, _Piece] = {}
        self.statements: dict[str, Statement] = {}
        self.signatures: dict[str, Shape] = {}
        self.frames: dict[str, StackFrames] = {}
        # Texts that were found to be well formed.
        self.headers: set[str] = set()
        self.attributes: set[str] = set()
        self.skeletons: set[str] = set()
        self.attribute_skeletons: set[str] = set()


def parse(text: str, *, file: str | None = None) -> Module:
    """Reads one module.

    ``file`` is only named in errors. Raises ``UnusableInput`` with line and column where the text
    is not HLO, is cut short, or contradicts itself (an operand that is not defined, a name that is
    defined twice, a wrong number of operands, a result that is not of the declared shape).
    """
    with _collector_paused():
        module = read(text, ParseTable(), file=file)
        module.check()
    return module


def read(text: str, table: ParseTable, *, file: str | None = None) -> Module:
    """Reads one of many modules that have much in common.

    Raises ``UnusableInput`` where a line is not HLO or the text is cut short; contradictions
    between lines come out when a computation is first looked at, or by ``Module.check``.
    """
    with _collector_paused():
        try:
            try:
                return _Reader(text, table, file).module()
            except UnusableInput as error:
                lines, places = normalise(text)
                plain, positions = "\n".join(lines), tuple(places) or ((1, 1),)
                try:
                    return _Reader(plain, table, file, positions).module()
                except UnusableInput as other:
                    line, column = positions[min(other.line or 1, len(positions)) - 1]
                    # The reading that came further understood more of the text.
                    if line > (error.line or 1):
                        raise UnusableInput(other.problem, line=line, column=column) from None
                    raise error from None
        except UnusableInput as error:
            raise (error.within(file) if file else error) from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Reading makes many objects and no garbage: looking for some would be a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_statement = partial(tuple.__new__, Statement)  # three times as fast as calling the class
_ZEROS = re.compile("0+(?:,0+)*+")
_DIGITS = str.maketrans("123456789", "0" * 9)


def _skeletons(attributes: Sequence[str]) -> list[str]:
    """For each line's attributes a key that only lines share whose attributes have one form.

    Strings are emptied, numbers and lists of numbers become one zero.
    """
    text = "\n".join(attributes)
    if "backend_config={" in text:
        text = _CONFIGURATION.sub("backend_config={}", text)
    if "\\" in text or "'" in text:
        text = _STRINGS.sub('""', text)
    else:
        text = '""'.join(text.split('"')[::2])
    skeletons = _ZEROS.sub("0", text.translate(_DIGITS)).split("\n")
    if len(skeletons) != len(attributes):  # a line does not close its string
        return list(attributes)
    return skeletons


class _Reader:
    """Reads one text; ``line`` is where errors count from."""

    def __init__(
        self,
        text: str,
        table: ParseTable,
        file: str | None,
        positions: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        self.text = text.replace("\r\n", "\n") if "\r" in text else text
        self.table = table
        self.file = file
        self.positions = positions
        self.line = 1

    def module(self) -> Module:
        text = self.text
        position = self._skip_blank(0)
        name, header = None, ""
        if found := _HEADER.match(text, position):
            name, header = found[1], found[2].rstrip()
            self._check_header(header, found.start(2) - found.start())
            position = self._skip_blank(found.end())
        position, frames = self._frames(position)

        bodies: list[Body] = []
        lines: list[int] = []
        entry: int | None = None
        defined: set[str] = set()
        pieces = text.split("\n}")
        pieces[0] = f"\n{pieces[0][position:]}"
        self.line -= 1  # for the line break that was put in front
        known = list(map(self.table.pieces.get, pieces))
        if None in known:
            self._learn(pieces, known)
        for footer, body, is_entry, opening, height in known:  # type: ignore[misc]
            if footer:
                if not bodies:
                    raise self._unexpected(footer, 0)
                bodies[-1] = bodies[-1].with_footer(footer)
            if body is None:
                break
            if body.name in defined:
                raise self._error(f"computation {body.name} is defined twice", opening)
            if is_entry:
                if entry is not None:
                    raise self._error("a second ENTRY computation, expected one", opening)
                entry = len(bodies)
            defined.add(body.name)
            bodies.append(body)
            lines.append(self.line + opening)
            self.line += height
        if len(bodies) < len(pieces) - 1:
            raise self._error("found '}', which nothing opens")
        if bodies and len(bodies) == len(pieces):
            raise self._cut(bodies[-1].name)
        if not bodies:
            raise self._error(
                "no computation found, expected HLO text (HloModule name, then computations)"
            )
        if entry is None:
            entry = len(bodies) - 1
        return Module(
            name if name is not None else f"module_{bodies[entry].name}",
            header,
            frames,
            tuple(bodies),
            tuple(lines),
            entry,
            self.file,
            self.positions,
        )

    def _error(self, problem: str, offset: int = 0, column: int = 1) -> UnusableInput:
        return UnusableInput(problem, line=self.line + offset, column=column)

    def _unexpected(self, line: str, offset: int) -> UnusableInput:
        return self._error(
            f"found {shorten(repr(line))}, expected a computation such as "
            "'%name (x: f32[2]) -> f32[2] {'",
            offset,
        )

    def _cut(self, name: str) -> UnusableInput:
        return UnusableInput(
            f"the text ends inside computation {shorten(name)}, expected '}}': is the file cut?",
            line=self.text.count("\n") + 1,
            column=len(self.text) - self.text.rfind("\n"),
        )

    def _skip_blank(self, position: int) -> int:
        text, start = self.text, position
        while position < len(text) and text[position] in " \t\n":
            position += 1
        self.line += text.count("\n", start, position)
        return position

    def _check_header(self, header: str, offset: int) -> None:
        if header in self.table.headers:
            return
        skeleton = _NUMBERS_AND_NAMES.sub("0", _STRINGS.sub('""', strip_comments(header)))
        skeleton = _REPEATED.sub(r"\1", skeleton.replace("false", "true"))
        skeleton = _SHAPES.sub("f0[0]", skeleton)
        if not self._attributes_fit(skeleton):
            raise self._diagnose("attributes", header, 0, offset)
        self.table.headers.add(header)

    def _frames(self, position: int) -> tuple[int, StackFrames | None]:
        if not self.text.startswith("FileNames", position):
            return position, None
        end = StackFrames.end(self.text, position)
        content = self.text[position:end].rstrip()
        frames = self.table.frames.get(content)
        if frames is None:
            frames = self.table.frames[content] = StackFrames(content)
        self.line += self.text.count("\n", position, end)
        return end, frames

    def _learn(self, pieces: list[str], known: list[_Piece | None]) -> None:
        """Reads the pieces that are not known yet, their new lines all at once."""
        table, start = self.table, self.line
        new: dict[int, list[str]] = {}
        unread: dict[str, None] = {}
        for index, content in enumerate(pieces):
            if known[index] is None:
                lines = new[index] = content.split("\n")
                for line, statement in zip(lines, map(table.statements.get, lines), strict=True):
                    if statement is None and line.startswith("  "):
                        unread[line] = None
        missing = list(unread)
        with suppress(UnusableInput):  # told below, with its place
            table.statements.update(zip(missing, self._read(missing, 0), strict=True))
        for index, content in enumerate(pieces):
            if index in new:
                piece = table.pieces.get(content) or self._piece(new[index])
                known[index] = table.pieces[content] = piece
            self.line += known[index].height  # type: ignore[union-attr]
        self.line = start

    def _piece(self, lines: list[str]) -> _Piece:
        footer = self._footer(lines[0])
        opening = 1
        while opening < len(lines) and not lines[opening].strip():
            opening += 1
        if opening == len(lines):
            return _Piece(footer, None, False, 0, len(lines))
        found = _OPENING.match(lines[opening])
        if found is None:
            raise self._unexpected(lines[opening], opening)
        entry, name, signature = found.groups("")
        body = Body(
            name,
            signature,
            self._statements(lines[opening + 1 :], opening + 1),
            self.table.shapes,
            self._result(name, signature, opening) if signature else None,
        )
        return _Piece(footer, body, bool(entry), opening, len(lines))

    def _footer(self, line: str) -> str:
        """What stands behind a closing brace: an execution thread, or a comment."""
        footer = strip_comments(line).strip() if line else ""
        if footer and not self._attributes_fit(footer):
            raise self._diagnose("footer", line, 0, 1)
        return footer

    def _result(self, name: str, signature: str, offset: int) -> Shape:
        """The shape that ``signature`` declares."""
        known = self.table.signatures.get(signature)
        if known is None:
            plain = strip_comments(signature) if "/*" in signature else signature
            found = _SIGNATURE.fullmatch(plain.strip())
            if found is None:
                raise self._diagnose("signature", f"{name} {signature} {{", offset)
            known = self._shape(found[1], signature, offset)
            self.table.signatures[signature] = known
        return known

    def _statements(self, lines: list[str], offset: int) -> tuple[Statement, ...]:
        known = self.table.statements
        statements = list(map(known.get, lines))
        if None in statements:
            for index, line in enumerate(lines):
                if statements[index] is None:
                    known[line] = statements[index] = self._read([line], offset + index)[0]
        return tuple(statements)  # type: ignore[arg-type]

    def _read(self, lines: list[str], offset: int) -> list[Statement]:
        """What ``lines`` state; an error is put at ``offset``, so only one line should be wrong."""
        if not lines:
            return []
        text = "\n".join(lines)
        if "/*" in text or "//" in text:
            lines = [
                strip_comments(line) if "/*" in line or "//" in line else line for line in lines
            ]
            text = "\n".join(lines)
        statements = list(map(_statement, _LINE.findall(text)))
        if len(statements) != len(lines):
            raise self._diagnose("instruction", lines[0], offset)
        for shape in {statement.shape for statement in statements}:
            if shape not in self.table.shapes.known:
                self._shape(shape, lines[0], offset)
        attributes = list({s.attributes for s in statements}.difference(self.table.attributes))
        for text, skeleton in zip(attributes, _skeletons(attributes), strict=True):
            if skeleton not in self.table.skeletons:
                if not self._attributes_fit(text):
                    raise self._diagnose("instruction", lines[0], offset)
                self.table.skeletons.add(skeleton)
        self.table.attributes.update(attributes)
        for statement in statements:
            if statement.opcode == "constant" or statement.opcode == "parameter":
                shape = self.table.shapes[statement.shape]
                problem = check_literal(statement.opcode, statement.inside.strip(), shape)
                if problem:
                    column = lines[0].find(statement.opcode) + 1
                    raise self._error(f"{statement.name}: {problem}", offset, column)
        return statements

    def _shape(self, text: str, line: str, offset: int) -> Shape:
        try:
            return self.table.shapes[text]
        except UnusableInput as error:
            column = line.find(text) + (error.column or 1)
            raise self._error(error.problem, offset, column) from None

    def _attributes_fit(self, text: str) -> bool:
        """Whether the grammar knows every attribute in ``text``."""
        skeleton = _CONFIGURATION.sub("backend_config={}", text)
        skeleton = _STRINGS.sub('""', strip_comments(skeleton))
        pieces = cut_attributes(_NUMBERS_AND_NAMES.sub("0", skeleton))
        if pieces is None:
            return False
        for piece in pieces:
            if piece not in self.table.attribute_skeletons:
                try:
                    check("attributes", piece.replace("%0", "%n"))
                except UnusableInput:
                    return False
                self.table.attribute_skeletons.add(piece)
        return True

    def _diagnose(self, rule: str, line: str, offset: int, column: int = 0) -> UnusableInput:
        """The grammar's own word on what is wrong with ``line``."""
        try:
            check(rule, line[:_DIAGNOSED])
        except UnusableInput as error:
            if len(line) <= _DIAGNOSED or (error.column or 0) < _DIAGNOSED - 100:
                shift = column if rule != "instruction" else 0
                return self._error(error.problem, offset, (error.column or 1) + shift)
        return self._error(
            f"cannot read {shorten(repr(line.strip()))}, expected an instruction such as "
            "'%name = f32[2]{0} add(%a, %b), attribute=value'",
            offset,
            column + 1,
        )
