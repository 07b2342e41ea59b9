"""HLO text becomes a module.

Dumps repeat themselves: the stages of one module share almost all of their lines, and lines share
almost all of their forms. So a line is cut at its joints by one regular expression, and a
``ParseTable`` remembers what was read: computations by their text, lines by their text, shapes by
their text. The grammar (``grammars/hlo.lark``) reads the *skeleton* of the attributes, which is
what is left when names, numbers and strings are taken out, and each skeleton once; it also says
what is wrong with a line that cannot be cut.

Text that is not in the compiler's own form (one instruction a line, bodies indented) is first
brought into it, see ``normalise``.
"""

from __future__ import annotations

import re

from fusionscope.errors import UnusableInput
from fusionscope.hlo.attributes import BRACES, CALLS, PARENTHESES, called_names
from fusionscope.hlo.grammar import check, shorten
from fusionscope.hlo.literals import check_literal
from fusionscope.hlo.model import Body, Module, Statement
from fusionscope.hlo.normalise import normalise
from fusionscope.hlo.opcodes import OPERAND_COUNT
from fusionscope.hlo.shape import Shape, ShapeTable
from fusionscope.hlo.source import StackFrames
from fusionscope.hlo.text import NAME, STRING, strip_comments

_SHAPE = rf"(?:[a-z]\w*+\s*\[[^\[\]]*+\](?:\s*\{{\s*[\d:][^{{}}]*+\}})?|b?{PARENTHESES})"
_LINE = re.compile(
    rf"\s*+(ROOT\s++)?+%?({NAME})\s*+=\s*+({_SHAPE})\s*+([a-z][a-z0-9\-]*+)\s*+"
    rf"\(((?:[^()\"]++|{STRING}|{PARENTHESES})*+)\)\s*+(,.*)?"
)
_OPERAND = re.compile(rf"\s*(?:({_SHAPE})\s+)?%?({NAME})\s*((?:#\s*\d+\s*)*)(?:,|$)")
_HEADER = re.compile(rf"HloModule\s+%?({NAME})(.*)")
_OPENING = re.compile(rf"(ENTRY[ \t]+)?%?({NAME})[ \t]*(?:(\(.*\)[ \t]*->.*\S))?[ \t]*\{{[ \t]*$", re.M)
_SIGNATURE = re.compile(
    rf"\(\s*(?:%?{NAME}:\s*{_SHAPE}\s*(?:,\s*%?{NAME}:\s*{_SHAPE}\s*)*+)?\)\s*->\s*({_SHAPE})"
)

_STRINGS = re.compile(STRING, re.DOTALL)
_CONFIGURATION = re.compile(rf"backend_config={BRACES}")
_NUMBERS = re.compile(r"-?\d+(?:,\s*-?\d+)*")
_NAMES = re.compile(rf"%{NAME}")
_CALLED = re.compile(rf"(?:{'|'.join(sorted(CALLS))})=")
_ALIASES = re.compile(r"(\{0?\}: \(0, \{0?\}(?:, [a-z-]+)?\))(?:, \1)+")
_SHAPES = re.compile(rf"{_SHAPE}(?:,\s*{_SHAPE})*+")

# An error message need not read more of a line than this.
_DIAGNOSED = 4000


class ParseTable:
    """What was read once; share one between the stages of a dump."""

    def __init__(self) -> None:
        self.shapes = ShapeTable()
        self.bodies: dict[str, Body] = {}
        self.statements: dict[str, Statement] = {}
        self.skeletons: set[str] = set()
        self.headers: set[str] = set()
        self.frames: dict[str, StackFrames] = {}


def parse(text: str, *, file: str | None = None, table: ParseTable | None = None) -> Module:
    """Reads one module.

    ``file`` is only named in errors. Raises ``UnusableInput`` with line and column where the text
    is not HLO, is cut short, or contradicts itself (an operand that is not defined, a name that is
    defined twice, a wrong number of operands, a result that is not of the declared shape).
    """
    table = table or ParseTable()
    try:
        try:
            return _Reader(text, table).module()
        except UnusableInput as error:
            plain, positions = normalise(text)
            try:
                return _Reader(plain, table, positions).module()
            except UnusableInput as other:
                line, column = positions[min(other.line or 1, len(positions)) - 1]
                # The reading that came further understood more of the text.
                if line > (error.line or 1):
                    raise UnusableInput(other.problem, line=line, column=column) from None
                raise error from None
    except UnusableInput as error:
        raise (error.within(file) if file else error) from None


class _Reader:
    def __init__(
        self, text: str, table: ParseTable, positions: tuple[tuple[int, int], ...] | None = None
    ) -> None:
        self.text = text
        self.table = table
        self.positions = positions
        self.line = 1

    def module(self) -> Module:
        text = self.text
        position = self._skip_blank(0)
        name, header = None, ""
        if found := _HEADER.match(text, position):
            name, header = found[1], found[2].rstrip()
            self._header(header, found.start(2) - found.start())
            position = found.end()
        position, frames = self._frames(self._skip_blank(position))

        bodies: list[Body] = []
        lines: list[int] = []
        entry: int | None = None
        defined: set[str] = set()
        while True:
            position = self._skip_blank(position)
            if position >= len(text):
                break
            opening = _OPENING.match(text, position)
            if opening is None:
                raise self._no_computation(position)
            body, position = self._body(opening)
            if body.name in defined:
                raise self._error(f"computation {body.name} is defined twice")
            for statement in body.statements:
                for called in statement.calls:
                    if called not in defined:
                        index = body.statements.index(statement)
                        raise self._error(
                            f"{statement.name} calls {shorten(called)}, which is not defined "
                            "above it",
                            body.lines[index],
                        )
            if opening[1]:
                if entry is not None:
                    raise self._error("a second ENTRY computation, expected only one")
                entry = len(bodies)
            defined.add(body.name)
            bodies.append(body)
            lines.append(self.line)
            self.line += text.count("\n", opening.start(), position)
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
            self.positions,
        )

    def _error(self, problem: str, offset: int = 0, column: int = 1) -> UnusableInput:
        return UnusableInput(problem, line=self.line + offset, column=column)

    def _skip_blank(self, position: int) -> int:
        text, start = self.text, position
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
        self.line += text.count("\n", start, position)
        return position

    def _header(self, header: str, offset: int) -> None:
        if header in self.table.headers:
            return
        skeleton = _ALIASES.sub(r"\1", _NUMBERS.sub("0", _STRINGS.sub('""', header)))
        skeleton = _SHAPES.sub("f0[0]", strip_comments(skeleton))
        if skeleton not in self.table.skeletons:
            try:
                check("attributes", skeleton)
            except UnusableInput:
                raise self._diagnose("attributes", header, 0, offset) from None
            self.table.skeletons.add(skeleton)
        self.table.headers.add(header)

    def _frames(self, position: int) -> tuple[int, StackFrames | None]:
        if not self.text.startswith("FileNames", position):
            return position, None
        opening = _OPENING.search(self.text, position)
        end = opening.start() if opening else len(self.text)
        content = self.text[position:end].rstrip()
        frames = self.table.frames.get(content)
        if frames is None:
            frames = StackFrames(content, self.line)
            frames.check()
            self.table.frames[content] = frames
        self.line += self.text.count("\n", position, end)
        return end, frames

    def _no_computation(self, position: int) -> UnusableInput:
        end = self.text.find("\n", position)
        line = self.text[position : end if end >= 0 else len(self.text)]
        return self._error(
            f"found {shorten(repr(line))}, expected a computation such as "
            "'%name (x: f32[2]) -> f32[2] {'"
        )

    def _body(self, opening: re.Match[str]) -> tuple[Body, int]:
        text = self.text
        closing = text.find("\n}", opening.end())
        if closing < 0:
            self._read_statements(text[opening.end() + 1 :].split("\n"))
            self.line += text.count("\n", opening.start())
            raise self._error(
                f"the text ends inside computation {opening[2]}, expected '}}': is the file cut?"
            )
        end = text.find("\n", closing + 1)
        end = len(text) if end < 0 else end
        content = text[opening.start() : end]
        body = self.table.bodies.get(content)
        if body is None:
            lines = content.split("\n")
            footer = self._footer(lines[-1], len(lines) - 1)
            statements = self._read_statements(lines[1:-1])
            body = self._assemble(opening[2], opening[3] or "", statements, footer)
            self.table.bodies[content] = body
        return body, end

    def _footer(self, line: str, offset: int) -> str:
        """What stands behind the closing brace: an execution thread, or a comment."""
        footer = strip_comments(line)[1:].strip()
        if footer:
            try:
                check("footer", footer)
            except UnusableInput:
                raise self._diagnose("footer", line, offset, 1) from None
        return footer

    def _read_statements(self, lines: list[str]) -> list[Statement]:
        statements: list[Statement | None] = list(map(self.table.statements.get, lines))
        if None in statements:
            for index, line in enumerate(lines):
                if statements[index] is None:
                    statement = self._statement(line, index + 1)
                    self.table.statements[line] = statements[index] = statement
        return statements  # type: ignore[return-value]

    def _statement(self, line: str, offset: int) -> Statement:
        plain = strip_comments(line) if "/*" in line or "//" in line else line
        found = _LINE.fullmatch(plain)
        if found is None:
            raise self._diagnose("instruction", line, offset)
        root, name, shape_text, opcode, inner, attributes = found.groups()
        try:
            shape = self.table.shapes[shape_text]
        except UnusableInput as error:
            column = found.start(3) + (error.column or 1)
            raise self._error(error.problem, offset, column) from None
        calls: tuple[str, ...] = ()
        if attributes:
            attributes = attributes.rstrip()
            calls = self._check_attributes(attributes, line, offset)
        literal: str | None = None
        typed: tuple[Shape | None, ...] | None = None
        operands: tuple[str, ...] = ()
        if opcode == "constant":
            literal = inner.strip()
            problem = check_literal(literal, shape)
            if problem:
                raise self._error(f"{name}: {problem}", offset, found.start(5) + 1)
        elif opcode == "parameter":
            literal = inner.strip()
            if not literal.isdecimal():
                raise self._error(
                    f"found {shorten(repr(literal))}, expected the number of parameter {name}",
                    offset,
                    found.start(5) + 1,
                )
        elif inner:
            names = inner.replace("%", "").replace(", ", ",")
            if " " in names or "[" in names or "(" in names or '"' in names:
                operands, typed = self._typed_operands(inner, line, offset, found.start(5))
            else:
                operands = tuple(names.split(","))
        expected = OPERAND_COUNT.get(opcode)
        if expected is not None and len(operands) != expected:
            raise self._error(
                f"{opcode} {name} has {len(operands)} operands, expected {expected}",
                offset,
                found.start(5) + 1,
            )
        return Statement(
            name, opcode, shape, operands, attributes or "", calls, bool(root), literal, typed
        )

    def _check_attributes(self, attributes: str, line: str, offset: int) -> tuple[str, ...]:
        skeleton = attributes
        if "backend_config={" in skeleton:
            skeleton = _CONFIGURATION.sub("backend_config={}", skeleton)
        if '"' in skeleton or "'" in skeleton:
            skeleton = _STRINGS.sub('""', skeleton)
        skeleton = _NUMBERS.sub("0", skeleton)
        if "%" in skeleton:
            skeleton = _NAMES.sub("%n", skeleton)
        if skeleton not in self.table.skeletons:
            try:
                check("attributes", skeleton)
            except UnusableInput:
                raise self._diagnose("instruction", line, offset) from None
            self.table.skeletons.add(skeleton)
        return called_names(attributes) if _CALLED.search(skeleton) else ()

    def _typed_operands(
        self, inner: str, line: str, offset: int, column: int
    ) -> tuple[tuple[str, ...], tuple[Shape | None, ...] | None]:
        names: list[str] = []
        shapes: list[Shape | None] = []
        position, inner = 0, inner.rstrip()
        while position < len(inner) or inner.endswith(","):
            found = _OPERAND.match(inner, position)
            if found is None:
                raise self._diagnose("instruction", line, offset, column + position)
            try:
                shapes.append(self.table.shapes[found[1]] if found[1] else None)
            except UnusableInput as error:
                at = column + found.start(1) + (error.column or 1)
                raise self._error(error.problem, offset, at) from None
            names.append(found[2] + re.sub(r"\s+", "", found[3]))
            position = found.end()
            if position == len(inner) and not inner.endswith(","):
                break
        return tuple(names), tuple(shapes) if any(shapes) else None

    def _diagnose(self, rule: str, line: str, offset: int, column: int = 0) -> UnusableInput:
        """The grammar's own word on what is wrong with ``line``."""
        try:
            check(rule, line[:_DIAGNOSED])
        except UnusableInput as error:
            if len(line) <= _DIAGNOSED or (error.column or 0) < _DIAGNOSED - 100:
                shift = column if rule == "attributes" else 0
                return self._error(error.problem, offset, (error.column or 1) + shift)
        return self._error(
            f"cannot read {shorten(repr(line.strip()))}, expected an instruction such as "
            "'%name = f32[2]{0} add(%a, %b), attribute=value'",
            offset,
            column + 1,
        )

    def _assemble(
        self, name: str, signature: str, statements: list[Statement], footer: str
    ) -> Body:
        position: dict[str, int] = {}
        kept: list[Statement] = []
        edges: list[tuple[int, ...]] = []
        lines: list[int] = []
        root: int | None = None
        for offset, statement in enumerate(statements, 1):
            try:
                edge = tuple([position[operand] for operand in statement.operands])
            except KeyError:
                for operand in statement.operands:
                    if operand not in position:
                        self._element(operand, statement, offset, position, kept, edges)
                        lines.extend([offset] * (len(kept) - len(lines)))
                edge = tuple([position[operand] for operand in statement.operands])
            index = len(kept)
            if statement.name in position:
                raise self._error(f"{statement.name} is defined twice", offset)
            if statement.typed is not None:
                self._check_typed(statement, [kept[i] for i in edge], offset)
            position[statement.name] = index
            kept.append(statement)
            edges.append(edge)
            lines.append(offset)
            if statement.is_root:
                if root is not None:
                    raise self._error(
                        f"{statement.name} is a second ROOT, expected only one", offset
                    )
                root = index
        if not kept:
            raise self._error(f"computation {name} is empty, expected instructions")
        if root is None:
            root = len(kept) - 1
            kept[root] = kept[root]._replace(is_root=True)
        if signature:
            self._check_signature(name, signature, kept[root])
        return Body(
            name,
            signature,
            tuple(kept),
            tuple(edges),
            root,
            tuple(lines) if len(kept) > len(statements) else range(1, len(kept) + 1),
            footer,
        )

    def _element(
        self,
        operand: str,
        user: Statement,
        offset: int,
        position: dict[str, int],
        kept: list[Statement],
        edges: list[tuple[int, ...]],
    ) -> None:
        """Adds what the compact form ``op#1#0`` leaves out: one get-tuple-element an index."""
        name, *indices = operand.split("#")
        if name not in position:
            raise self._error(
                f"{user.name} reads {shorten(repr(name))}, which is not defined above it", offset
            )
        for index in indices:
            outer = position[name]
            elements = kept[outer].shape.elements
            if not index.isdecimal() or int(index) >= len(elements):
                raise self._error(
                    f"{user.name} reads element {shorten(index)} of {name}, whose shape "
                    f"{shorten(str(kept[outer].shape))} has no such element",
                    offset,
                )
            name = f"{name}#{index}"
            if name not in position:
                position[name] = len(kept)
                kept.append(
                    Statement(
                        name,
                        "get-tuple-element",
                        elements[int(index)],
                        (kept[outer].name,),
                        f", index={index}",
                    )
                )
                edges.append((outer,))

    def _check_typed(
        self, statement: Statement, operands: list[Statement], offset: int
    ) -> None:
        for declared, operand in zip(statement.typed or (), operands, strict=True):
            if declared is not None and not declared.compatible(operand.shape):
                raise self._error(
                    f"{statement.name} declares its operand {operand.name} as {declared}, "
                    f"but that is {operand.shape}",
                    offset,
                )

    def _check_signature(self, name: str, signature: str, root: Statement) -> None:
        found = _SIGNATURE.fullmatch(strip_comments(signature).strip())
        if found is None:
            raise self._diagnose("signature", f"{name} {signature} {{", 0)
        try:
            declared = self.table.shapes[found[1]]
        except UnusableInput as error:
            raise self._error(error.problem) from None
        if not declared.compatible(root.shape):
            raise self._error(
                f"computation {name} declares its result as {shorten(str(declared))}, but its "
                f"root {root.name} is {shorten(str(root.shape))}"
            )
