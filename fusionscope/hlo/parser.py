"""Parses HLO text into a module.

Dumps are repetitive: the stages of one module share almost all of their lines, and lines share
almost all of their forms. A ``ParseTable`` therefore caches computations and lines by their text,
and new lines are read many at a time. One regular expression cuts them at their joints; others take
names, numbers and strings out of their attributes. The rest of an attribute is its *skeleton*. The
grammar (``grammars/hlo.lark``) reads each skeleton once, and gives the error for a line that cannot
be cut.

Text in another form than the compiler's (one instruction per line, bodies indented) is first
rewritten, see ``desugar``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache, partial
from hashlib import blake2b
from itertools import chain, filterfalse, pairwise
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.hlo.attributes import (
    check_attributes,
    outlines,
    plain_keys,
    split_attributes,
    with_zeros,
)
from fusionscope.hlo.desugar import desugar
from fusionscope.hlo.forms import Joints
from fusionscope.hlo.grammar import derive
from fusionscope.hlo.known import check_known
from fusionscope.hlo.literals import check_literal
from fusionscope.hlo.model import Body, Module, Statement
from fusionscope.hlo.opcodes import OPCODES
from fusionscope.hlo.shape import Shape, ShapeTable
from fusionscope.hlo.shorthand import is_async_shorthand, write_out
from fusionscope.hlo.source import StackFrames
from fusionscope.hlo.text import (
    ARRAY,
    INSTRUCTION,
    NAME,
    SHALLOW_INSTRUCTION,
    strip_comments,
)
from fusionscope.system.collector import collector_paused

_SHALLOW = re.compile(rf"^[ \t]*{SHALLOW_INSTRUCTION}$", re.MULTILINE)
_COMMENT = re.compile(r"\s+|//[^\n]*|/\*(?s:.*?)\*/|\ufeff")
# How a module, a computation or an instruction begins.
_BEGIN = re.compile(r"HloModule\b|ENTRY\b|(?:ROOT\s+)?%?[\w.-]+\s*[=({]")
_MLIR = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:builtin\.)?module\s+(?:@|attributes)")
_BLANK = re.compile(r"[ \t\n]*")
_MARGINS = re.compile(r"^[ \t]*(?=\S)", re.MULTILINE)
_HEADER = re.compile(rf"HloModule\s+%?({NAME}):?[ \t]*(.*)")
_OPENING = re.compile(rf"[ \t]*(ENTRY(?:[ \t]+|(?=%))|(?!ENTRY[ \t]))%?({NAME})(?![\w.\-])[ \t]*")
# A signature is cut at its parameters and at other arrays.
_NAMED = rf"%?{NAME}(?::\s*|\s+)"
_SIGNATURES = Joints(
    "signature",
    "signature",
    r"(?<!\w)(?=[%A-Za-z_])",
    (
        (rf"{_NAMED}{ARRAY}", "n: f32[]", True),
        (rf"{_NAMED}(?=b?\()", "n: ", False),
        (ARRAY, "f32[]", True),
    ),
)
_ARRAYS = re.compile(rf"(?<!\w){ARRAY}")

_HLO = "HLO text: 'HloModule name', then computations such as '%name (x: f32[2]) -> f32[2] {'"
# Error messages read no more of a line than this.
_DIAGNOSED = 4000
_LONG = 65_536  # characters of a computation


class _Piece(NamedTuple):
    """The text between two closing braces: the rest of a line, then a computation.

    ``opening`` counts the lines before the one that opens the computation, ``height`` all lines.
    """

    footer: str
    body: Body
    is_entry: bool
    opening: int
    height: int


# ENTRY or nothing, the name and the signature of a computation.
_Opening: TypeAlias = tuple[str, str, str]


class ParseTable:
    """The cache of everything that was read. Share one between the stages of a dump."""

    def __init__(self) -> None:
        self.shapes = ShapeTable()
        self.pieces: dict[str, _Piece] = {}
        self.following: dict[str, str] = {}  # the piece that last followed each
        # Long pieces, each after the one before it, by the name of their computation.
        self.long: dict[str, tuple[str, str]] = {}
        self.digests: dict[bytes, _Piece] = {}  # of long pieces
        self.statements: dict[str, Statement] = {}
        self.with_footers: dict[tuple[Body, str], Body] = {}
        self.frames: list[StackFrames] = []
        # Every other stage of a dump equals the one before it.
        self.last: tuple[str, Module] | None = None
        # Texts that are known to be well formed.
        self.headers: set[str] = set()
        self.outlines: set[tuple[str, str]] = set()  # with the opcodes of their instructions
        # Opcodes of a newer compiler, which ``opcodes`` does not list.
        self.unknown_opcodes: set[str] = set()

    def add(self, content: str, piece: _Piece, before: str) -> None:
        """Add a piece that follows ``before``. Of a long computation, which most stages change,
        only the last text is kept: all of them would be most of the text of a dump.
        """
        if len(content) > _LONG:
            name = piece.body.name
            earlier, its_before = self.long.get(name, ("", ""))
            self.long[name] = content, before
            self.pieces.pop(earlier, None)
            self.following.pop(earlier, None)
            if self.following.get(its_before) is earlier:
                del self.following[its_before]
            self.digests[_digest(content)] = piece
        self.pieces[content] = piece

    def recall(self, content: str, before: str) -> _Piece | None:
        """Return a long piece of which only the digest is kept, which now follows ``before``."""
        piece = self.digests.get(_digest(content)) if len(content) > _LONG else None
        if piece is not None:
            self.add(content, piece, before)
        return piece


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass")).digest()


def parse(text: str, *, file: str | None = None) -> Module:
    """Read one module.

    ``file`` is only named in errors. Raises ``UnusableInput`` with line and column if the text is
    not HLO, is truncated, contradicts itself (an operand that is not defined, a name that is
    defined twice, a wrong number of operands, a result of another shape than declared), or has
    operations or words that the compiler's parser does not know.
    """
    with collector_paused():
        table = ParseTable()
        module = read(text, table, file=file)
        module.check()
        check_known(module, table.outlines, text)
    return module


def read(text: str, table: ParseTable, *, file: str | None = None) -> Module:
    """Read one of many modules that have much in common.

    Raises ``UnusableInput`` if a line is not HLO or the text is truncated. Contradictions between
    lines raise it when a computation is first used, or in ``Module.check``.
    """
    if table.last is not None and table.last[0] == text:
        return table.last[1].with_file(file)
    with collector_paused():
        try:
            module = _read(text, table, file)
        except UnusableInput as error:
            raise UnusableInput(
                shorten(error.problem, 300),
                file=file,
                line=error.line,
                column=error.column,
                hint=error.hint or _doubt(text, error.problem),
            ) from None
    table.last = text, module
    return module


def _doubt(text: str, problem: str) -> str | None:
    """Return a hint if a text does not begin as HLO and the problem does not say so."""
    start = 0
    while blank := _COMMENT.match(text, start):
        start = blank.end()
    is_doubtful = _HLO not in problem and _BEGIN.match(text, start) is None
    return "Is this HLO text?" if is_doubtful else None


def _read(text: str, table: ParseTable, file: str | None) -> Module:
    try:
        return _Reader(text, table, file).module()
    except UnusableInput as error:
        first = error
    if margin := min(map(len, _MARGINS.findall(text)), default=0):
        try:
            return _read_indented(text, margin, table, file)
        except UnusableInput as error:
            first = error
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise UnusableInput(f"found binary data, expected {_HLO}", line=line, column=1)
    if _MLIR.match(text):
        raise UnusableInput(
            f"found MLIR, expected {_HLO}",
            line=1,
            column=1,
            hint="jax.jit(f).lower(...).as_text('hlo') prints HLO",
        )
    try:
        lines, places = write_out(*desugar(text))
        positions = tuple(places) or ((1, 1),)
        try:
            return _Reader("\n".join(lines), table, file, positions).module()
        except UnusableInput as error:
            raise _placed(error, text, lines, positions) from None
    except UnusableInput as second:
        # The first reading accepts only the compiler's own form. If it failed for another reason,
        # the reading that got further understood more of the text.
        further = (second.line or 1) > (first.line or 1)
        elsewhere = isinstance(first, _Unformed) and second.line != first.line
        raise (second if further or elsewhere else first) from None


def _read_indented(text: str, margin: int, table: ParseTable, file: str | None) -> Module:
    """Read a text in the compiler's own form whose lines are all indented by ``margin``."""
    lines = text.split("\n")
    try:
        module = _Reader("\n".join(line[margin:] for line in lines), table, file).module()
    except UnusableInput as error:
        kind = type(error)
        column = (error.column or 1) + margin
        raise kind(error.problem, line=error.line, column=column) from None
    return replace(module, positions=tuple((n, margin + 3) for n in range(1, len(lines) + 1)))


class _Unformed(UnusableInput):
    """Text that is not divided into computations as the compiler prints them."""


def _placed(
    error: UnusableInput, text: str, lines: list[str], positions: tuple[tuple[int, int], ...]
) -> UnusableInput:
    """Return an error in one of ``lines`` with its place in ``text``, as exactly as possible."""
    index = min(error.line or 1, len(positions)) - 1
    line, column = positions[index]
    if index < len(lines):
        line_text = lines[index].strip()
        behind = (error.column or 1) - 1 - (len(lines[index]) - len(lines[index].lstrip()))
        if behind > 0 and text.split("\n", line)[line - 1][column - 1 :].startswith(line_text):
            column += behind
    return UnusableInput(error.problem, line=line, column=column)


_LITERALS = frozenset({"constant", "parameter"})
_INDENTATION = frozenset(" \t")
_shape_of, _opcode_of, _attributes_of = itemgetter(2), itemgetter(3), itemgetter(5)
_statement = partial(tuple.__new__, Statement)  # three times as fast as calling the class


@cache
def _instruction() -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*{INSTRUCTION}$", re.MULTILINE)


class _Reader:
    """Reads one text. Errors count lines from ``line``."""

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
        if match := _HEADER.match(text, position):
            name, header = match[1], match[2].rstrip()
            self._check_header(header, match.start(2) - match.start())
            position = self._skip_blank(match.end())
        position, frames = self._frames(position)

        bodies: list[Body] = []
        lines: list[int] = []
        entry: int | None = None
        defined: set[str] = set()
        # Tables that are known hold no closing brace at the beginning of a line.
        pieces, tail = self._cut(position, position - 1 if frames in self.table.frames else 0)
        self.line -= 1  # for the line break that was inserted in front
        parsed = list(map(self.table.pieces.get, pieces))
        if None in parsed:
            self._learn(pieces, parsed)
        for footer, body, is_entry, opening, height in parsed:  # type: ignore[misc]
            if footer:
                bodies[-1] = self._with_footer(bodies[-1], footer)
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
        footer = self._tail(tail)
        if not bodies:
            raise self._error(f"no computation found, expected {_HLO}")
        if footer:
            bodies[-1] = self._with_footer(bodies[-1], footer)
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
        line = min(self.line + offset, self.text.count("\n") + 1)
        return UnusableInput(problem, line=max(1, line), column=column)

    def _unexpected(self, line: str, offset: int) -> UnusableInput:
        if line.lstrip()[:1].isdigit():
            row = "a row such as '1 {file_location_id=1 parent_frame_id=1}'"
            return self._error(f"found {quoted(line)}, expected {row}", offset)
        error = self._error(f"found {quoted(line)}, expected {_HLO}", offset)
        return _Unformed(error.problem, line=error.line, column=error.column)

    def _truncated(self, name: str) -> UnusableInput:
        return _Unformed(
            f"the text ends inside computation {shorten(name)}, expected '}}': is the file cut?",
            line=self.text.count("\n") + 1,
            column=len(self.text) - self.text.rfind("\n"),
        )

    def _skip_blank(self, position: int) -> int:
        end = _BLANK.match(self.text, position).end()  # type: ignore[union-attr]
        self.line += self.text.count("\n", position, end)
        return end

    def _check_header(self, header: str, offset: int) -> None:
        if header in self.table.headers:
            return
        if misfit := _misfit(header):
            raise self._diagnose("attributes", header, 0, offset, misfit)
        for shape in _ARRAYS.findall(split_attributes(header).get("entry_computation_layout", "")):
            self._shape(shape, header, 0)
        self.table.headers.add(header)

    def _frames(self, position: int) -> tuple[int, StackFrames | None]:
        for frames in self.table.frames:
            end = frames.end_here(self.text, position)
            if end is not None:
                break
        else:
            end = StackFrames.end(self.text, position)
            if end == position:
                return position, None
            frames = StackFrames(self.text[position:end].rstrip())
            if "\n}" not in frames.text:
                self.table.frames.append(frames)
        self.line += self.text.count("\n", position, end)
        return end, frames

    def _cut(self, position: int, start: int) -> tuple[list[str], str]:
        """Return the pieces from ``position`` on, each before a closing brace, and the rest. There
        is no closing brace before ``start``.

        A piece usually follows the same one as in the stage before. Comparing the text with it is
        ten times as fast as searching for its end.
        """
        text, following = self.text, self.table.following
        end = text.find("\n}", start)
        if end < 0:
            return [], f"\n{text[position:]}"
        piece = f"\n{text[position:end]}"
        pieces = [piece]
        while True:
            position = end + 2
            expected = following.get(piece)
            if expected is not None and text.startswith(expected, position):
                end = position + len(expected)
                if text.startswith("\n}", end):
                    piece = expected
                    pieces.append(piece)
                    continue
            end = text.find("\n}", position)
            if end < 0:
                break
            piece = text[position:end]
            pieces.append(piece)
        following.update(pairwise(pieces))
        return pieces, text[position:]

    def _learn(self, pieces: list[str], bodies: list[_Piece | None]) -> None:
        """Read the unknown pieces, with all their new lines at once."""
        table, start = self.table, self.line
        before = ["", *pieces]
        new: dict[str, list[str]] = {}
        for index, content in enumerate(pieces):
            if bodies[index] is None:
                bodies[index] = table.recall(content, before[index])
                if bodies[index] is None:
                    new[content] = content.split("\n")
        lines = chain.from_iterable(new.values())
        unread = dict.fromkeys(filterfalse(table.statements.__contains__, lines))
        self._read_many([line for line in unread if line[:1] in _INDENTATION])
        openings = self._read_openings(
            [line for lines in new.values() for line in lines[1:3] if line[-1:] == "{"]
        )
        for index, content in enumerate(pieces):
            piece = bodies[index]
            if piece is None:
                piece = table.pieces.get(content)  # it may be here twice
                if piece is None:
                    piece = self._piece(new[content], openings)
                    table.add(content, piece, before[index])
                bodies[index] = piece
            self.line += piece.height
        self.line = start

    def _read_many(self, lines: list[str]) -> None:
        """Read ``lines`` into the table, up to the first one that is not HLO."""
        pending = [lines]
        while pending:
            lines = pending.pop()
            try:
                self.table.statements.update(zip(lines, self._read(lines, 0), strict=True))
            except UnusableInput:
                if len(lines) == 1:
                    return  # reported when its piece is read
                half = len(lines) // 2
                pending += [lines[half:], lines[:half]]

    def _read_openings(self, lines: list[str]) -> dict[str, _Opening]:
        """Read lines that open computations, all at once; none if a signature is not HLO, which is
        reported when its piece is read.
        """
        plain = [strip_comments(line) if "/" in line else line for line in lines]
        cuts = {line: cut for line, cut in zip(lines, map(_cut_opening, plain), strict=True) if cut}
        signatures = "\n".join([signature for _, _, signature in cuts.values()])
        try:
            for outline in set(with_zeros(signatures).split("\n")):
                _check_signature(outline)
            for array in {*_ARRAYS.findall(signatures)}.difference(self.table.shapes.known):
                self._shape(array, signatures, 0)
        except UnusableInput:
            return {}
        return cuts

    def _piece(self, lines: list[str], openings: dict[str, _Opening]) -> _Piece:
        footer = self._footer(lines[0]) if lines[0] else ""
        opening = 1
        while opening < len(lines) and not lines[opening].strip():
            opening += 1
        if opening == len(lines):
            raise self._error("found '}', which nothing opens", len(lines))
        line = lines[opening]
        entry, name, signature = openings.get(line) or self._opening(line, opening)
        result = signature.rpartition("->")[2].strip()
        statements = self._statements(lines[opening + 1 :], opening + 1)
        if not statements:
            raise self._error(f"computation {name} is empty, expected instructions", opening)
        shape = self._shape(result, line, opening) if result else None
        body = Body(name, signature, statements, self.table.shapes, shape)
        return _Piece(footer, body, bool(entry), opening, len(lines))

    def _opening(self, line: str, offset: int) -> _Opening:
        line = strip_comments(line) if "/" in line else line
        cut = _cut_opening(line)
        if cut is None:
            if line.rstrip().endswith("{"):
                raise self._diagnose("opening", line, offset)
            raise self._unexpected(line, offset)
        try:
            _check_signature(with_zeros(cut[2]))
        except UnusableInput:
            raise self._diagnose("opening", line, offset) from None
        for array in {*_ARRAYS.findall(cut[2])}.difference(self.table.shapes.known):
            self._shape(array, line, offset)
        return cut

    def _footer(self, line: str) -> str:
        """Return the text after a closing brace: an execution thread, or a comment."""
        footer = strip_comments(line).strip()
        if footer and (misfit := _misfit(footer)):
            raise self._diagnose("footer", line, 0, 1, misfit)
        return footer

    def _with_footer(self, body: Body, footer: str) -> Body:
        with_footer = self.table.with_footers.get((body, footer))
        if with_footer is None:
            with_footer = self.table.with_footers[body, footer] = replace(body, footer=footer)
        return with_footer

    def _tail(self, text: str) -> str:
        """Return the text after the last closing brace, where only a footer is allowed."""
        footer, _, remaining = text.partition("\n")
        if line := remaining.strip():
            line = line.partition("\n")[0]
            opening = _cut_opening(strip_comments(line))
            if opening is not None:
                raise self._truncated(opening[1])
            raise self._unexpected(line, text[: text.index(line)].count("\n"))
        return self._footer(footer) if footer else ""

    def _statements(self, lines: list[str], offset: int) -> tuple[Statement, ...]:
        statements = self.table.statements
        try:
            return tuple(map(statements.__getitem__, lines))
        except KeyError:
            for index, line in enumerate(lines, offset):
                if line not in statements:
                    statements[line] = self._read([line], index)[0]
        return tuple(map(statements.__getitem__, lines))

    def _read(self, lines: list[str], offset: int) -> list[Statement]:
        """Return the statements of ``lines``. An error is placed at ``offset``, so only one line
        should be wrong.
        """
        if not lines:
            return []
        lines = [strip_comments(line) if "/*" in line else line for line in lines]
        text = "\n".join(lines)
        groups = _SHALLOW.findall(text)
        if len(groups) != len(lines):
            groups = _instruction().findall(text)
        statements = list(map(_statement, groups))
        if len(statements) != len(lines):
            raise self._diagnose("instruction", lines[0], offset)
        for shape in set(map(_shape_of, statements)).difference(self.table.shapes.known):
            self._shape(shape, lines[0], offset)
        attributes = list(map(_attributes_of, statements))
        opcodes = map(_opcode_of, statements)
        new = dict(zip(zip(opcodes, outlines(attributes), strict=True), attributes, strict=True))
        unknown = {opcode for opcode, _ in new}.difference(OPCODES)
        for opcode in unknown:
            if is_async_shorthand(opcode):
                raise self._error(f"{opcode} is not written out", offset)
        for outline in new.keys() - self.table.outlines:
            if plain_keys(outline[1]) is None and (misfit := _misfit(new[outline])):
                raise self._diagnose("instruction", lines[0], offset, otherwise=misfit)
            self.table.outlines.add(outline)
        for shape, opcode, inside in {s[2:5] for s in statements if s[3] in _LITERALS}:
            problem = check_literal(opcode, inside.strip(), self.table.shapes[shape])
            if problem:
                name = statements[0].name
                raise self._error(f"{name}: {problem}", offset, lines[0].find(opcode) + 1)
        for statement in [s for s in statements if "(" in s[4] and s[3] not in _LITERALS]:
            try:
                _ = statement.typed_operands
            except UnusableInput as error:
                raise self._error(
                    error.problem, offset, lines[0].find(statement.opcode) + 1
                ) from None
        self.table.unknown_opcodes |= unknown
        return statements

    def _shape(self, text: str, line: str, offset: int) -> Shape:
        if not text:  # omitted
            raise self._diagnose("instruction", line, offset)
        try:
            return self.table.shapes[text]
        except UnusableInput as error:
            column = line.find(text) + (error.column or 1)
            raise self._error(error.problem, offset, column) from None

    def _diagnose(
        self, rule: str, line: str, offset: int, column: int = 0, otherwise: str | None = None
    ) -> UnusableInput:
        """Return the grammar's error for ``line``, or ``otherwise``."""
        try:
            derive(rule, line[:_DIAGNOSED])
        except UnusableInput as error:
            if len(line) <= _DIAGNOSED or (error.column or 0) < _DIAGNOSED - 100:
                shift = column if rule != "instruction" else 0
                return self._error(error.problem, offset, (error.column or 1) + shift)
        return self._error(
            otherwise
            or f"cannot read {quoted(line[:_DIAGNOSED].strip())}, expected an instruction "
            "such as '%name = f32[2]{0} add(%a, %b), attribute=value'",
            offset,
            column + 1,
        )


def _cut_opening(line: str) -> _Opening | None:
    """Return what a line says that opens a computation."""
    line = line.rstrip(" \t")
    match = _OPENING.match(line)
    if match is None or line[-1] != "{":
        return None
    signature = line[match.end() : -1].rstrip(" \t")
    return None if signature and signature[0] != "(" else (match[1], match[2], signature)


@lru_cache(maxsize=4096)
def _check_signature(signature: str) -> None:
    """Raises ``UnusableInput`` if the grammar rejects the signature. It may be omitted."""
    if signature:
        skeleton, _ = _SIGNATURES.cut(signature)
        _SIGNATURES.form(skeleton)


def _misfit(text: str) -> str | None:
    """Return what is wrong with the attributes in ``text``, or None."""
    try:
        check_attributes(text)
    except UnusableInput as error:
        return error.problem
    return None
