"""A module of HLO: immutable, and cheap to share between the stages of a dump.

A ``Statement`` is the content of one line, a ``Body`` the lines of one computation. Neither knows
the file around it, so modules can share both. ``Module``, ``Computation`` and ``Instruction`` give
them their place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.hlo.attributes import (
    called_names,
    read_attribute,
    read_attributes,
    read_names,
    split_attributes,
)
from fusionscope.hlo.opcodes import LEAST_OPERANDS, OPERAND_COUNT
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape, ShapeTable
from fusionscope.hlo.source import StackFrames, source_stack
from fusionscope.hlo.source_location import SourceLocation
from fusionscope.hlo.text import NAME, SHAPE, strip_comments
from fusionscope.hlo.validate import (
    CHECKED,
    ELEMENTWISE,
    TRANSFERS,
    find_problem,
    transfer_shape,
)
from fusionscope.system.collector import collector_paused

if TYPE_CHECKING:
    import networkx

_OPERAND = rf"\s*(?:({SHAPE})[\s,]*)?%?({NAME})\s*((?:#\s*\d{{1,9}}\s*)*)(?:,[\s,]*|$)"
_PLAIN_OPERANDS = re.compile(rf"%?{NAME}(?:#\d{{1,9}})*(?:, *%?{NAME}(?:#\d{{1,9}})*)*")
_NUMBERS = [str(number) for number in range(1000)]
_NO_OPERANDS = frozenset({"constant", "parameter"})
NEVER_CALL = frozenset(OPERAND_COUNT) - {"select-and-scatter", "while"}
_UNIFORM = ELEMENTWISE - {"compare"}
# The order of a comparison, and its older notation, that the types of the operands imply.
_PARTIAL_ORDER = frozenset({("order", "PARTIAL"), ("type", "FLOAT")})
_TOTAL_ORDER = frozenset(
    {("order", "TOTAL"), ("type", "SIGNED"), ("type", "TOTALORDER"), ("type", "UNSIGNED")}
)
_NEGATIVE_ZERO = re.compile(r"(?<![\w.+\-])-0(?![\w.])")
_WITHOUT_MEANING = re.compile(rf", (?:metadata=\{{[^{{}}]*\}}|(?:calls|to_apply)=%?{NAME})")


class Statement(NamedTuple):
    """One instruction as its line states it, cut at its joints and otherwise verbatim.

    ``root`` is empty or ROOT, ``inside`` the text in the parentheses after the opcode,
    ``attributes`` everything from the following comma on.
    """

    root: str
    name: str
    shape: str
    opcode: str
    inside: str
    attributes: str

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands. Elements of tuples that the line writes in compact form have
        ``#index`` after the name.

        Raises ``UnusableInput``.
        """
        if not self.inside.strip() or self.opcode in _NO_OPERANDS:
            return ()
        if _PLAIN_OPERANDS.fullmatch(self.inside):
            return tuple(self.inside.replace("%", "").replace(" ", "").split(","))
        return tuple(name for _, name in self.typed_operands)

    @property
    def typed_operands(self) -> list[tuple[str, str]]:
        """Return the shape (empty if the line has none) and name of each operand."""
        # As in the compiler's parser, extra commas do not matter.
        text = strip_comments(self.inside).strip(" \t,")
        operands = []
        position = 0
        operand = re.compile(_OPERAND)  # compiled when a line first has this form
        while match := operand.match(text, position):
            operands.append((match[1] or "", match[2] + re.sub(r"\s+", "", match[3])))
            position = match.end()
            if position == len(text):
                return operands
        remaining = text[position:]
        if re.match(rf"(?:{SHAPE})?\s*(?:,|$)", remaining):
            raise UnusableInput(
                f"{self.name} has an operand without a name, so the text does not say what it reads"
            )
        raise UnusableInput(f"found {quoted(remaining)}, expected an operand of {self.name}")

    @property
    def calls(self) -> tuple[str, ...]:
        """The names of the computations that the instruction calls, in the printed order."""
        return () if self.opcode in NEVER_CALL else called_names(self.attributes)


class Graph(NamedTuple):
    """The instructions of one computation and the edges between them.

    ``operands[i]`` are the positions of the operands of instruction ``i``. ``lines[i]`` counts
    lines from the one that opens the computation. A get-tuple-element that the text only writes as
    ``%op#1`` has its own statement, named ``op#1``, before its first use.
    """

    statements: tuple[Statement, ...]
    operands: tuple[tuple[int, ...], ...]
    root: int
    lines: range | tuple[int, ...]


@dataclass(slots=True, eq=False)  # not frozen: a module has thousands, and freezing takes time
class Body:
    """The statements of one computation. Their graph is computed on demand.

    ``result`` is the shape that the signature declares, if there is one.
    """

    name: str
    signature: str
    written: tuple[Statement, ...]
    shapes: ShapeTable
    result: Shape | None = None
    footer: str = ""
    _graph: Graph | None = None
    _calls: dict[str, int] | None = None
    _waits_checked: bool = False

    @property
    def graph(self) -> Graph:
        """The graph of the statements. Raises ``UnusableInput`` (line from the opening one) if they
        contradict each other: an operand that is not defined above its user, a name defined twice,
        a wrong number of operands or parameters, a shape that differs from the declared one.
        """
        if self._graph is None:
            self._graph = _graph(self)
        return self._graph

    @property
    def calls(self) -> dict[str, int]:
        """The names of the called computations, in the order of the text, each with the line (from
        the opening one) that calls it first.
        """
        if self._calls is None:
            self._calls = {}
            for offset, statement in enumerate(self.written, 1):
                if statement[3] not in NEVER_CALL:
                    for name in called_names(statement[5]):
                        self._calls.setdefault(name, offset)
        return self._calls


def _graph(body: Body) -> Graph:
    statements: list[Statement] = []
    edges: list[tuple[int, ...]] = []
    roots: list[int] = []
    # Positions by name, with the percent sign that operands have in the text.
    position: dict[str, int] = {}
    find, count_of, sound = position.__getitem__, OPERAND_COUNT.get, body.shapes.sound
    shapes: list[str] = []
    for offset, statement in enumerate(body.written, 1):
        root, name, shape, opcode, inside, _ = statement
        edge: tuple[int, ...] = ()
        if inside in position:
            edge = (find(inside),)
        elif inside and opcode not in _NO_OPERANDS:
            try:
                edge = tuple(map(find, inside.split(", ")))
            except KeyError:  # not in the compiler's plain form
                edge = _unusual_edge(statement, position, statements, edges, body.shapes, offset)
                shapes += [added[2] for added in statements[len(shapes) :]]
        if count_of(opcode) != len(edge):
            _check_count(statement, len(edge), offset)
        if opcode in CHECKED:
            operands = [shapes[operand] for operand in edge]
            # Most elementwise operations have one shape throughout.
            if opcode not in _UNIFORM or operands.count(shape) < len(edge):
                line = id(statement), *operands
                checked_line = sound.get(line)
                if checked_line is None:
                    checked = _checked(statement, operands, body.shapes, offset)
                    checked_line = sound[line] = statement, checked
                statement = checked_line[1]
                shape = statement[2]
        if root:
            roots.append(len(edges))
        position["%" + name] = len(edges)
        edges.append(edge)
        statements.append(statement)
        shapes.append(shape)
    if len(roots) > 1 or len(position) < len(statements):
        raise _repeated(body)
    numbers = [statement[4] for statement in statements if statement[3] == "parameter"]
    if numbers != _NUMBERS[: len(numbers)] and set(numbers) != set(_NUMBERS[: len(numbers)]):
        _check_parameters(body)
    index = roots[0] if roots else len(statements) - 1
    _check_result(body, statements[index])
    lines: range | tuple[int, ...] = range(1, len(edges) + 1)
    if len(statements) > len(body.written):
        lines = _lines(statements)
    return Graph(tuple(statements), tuple(edges), index, lines)


def _unusual_edge(
    statement: Statement,
    position: dict[str, int],
    statements: list[Statement],
    edges: list[tuple[int, ...]],
    shapes: ShapeTable,
    offset: int,
) -> tuple[int, ...]:
    """See ``_find_operands``. Raises ``UnusableInput`` with the line."""
    try:
        return _find_operands(statement, position, statements, edges, shapes)
    except UnusableInput as error:
        raise UnusableInput(error.problem, line=offset) from None


def _checked(
    statement: Statement, operands: list[str], shapes: ShapeTable, offset: int
) -> Statement:
    """Return the statement with the dimensions that may be omitted, without an order that its
    operands imply, and with the shape that they determine. Raises ``UnusableInput`` if it does not
    fit the shapes of its operands.
    """
    _, name, shape, opcode, _, attributes = statement
    problem = find_problem(opcode, operands, shape, attributes, shapes)
    if problem is not None:
        raise UnusableInput(f"{opcode} {name} {problem}", line=offset)
    if opcode == "broadcast" and "dimensions=" not in attributes:
        # Optional for a scalar, though the compiler prints them.
        return statement._replace(attributes=f", dimensions={{}}{attributes}")
    if opcode == "compare":
        implied = _PARTIAL_ORDER if shapes[operands[0]].is_floating else _TOTAL_ORDER
        return statement._replace(attributes=_without(implied, attributes))
    if opcode in TRANSFERS:
        declared = shapes[shape]
        transferred = transfer_shape(opcode, [shapes[operand] for operand in operands], declared)
        if transferred is not None and not declared.compatible(transferred):
            text = str(transferred)
            shapes.known[text] = transferred
            return statement._replace(shape=text)
    return statement


def _without(left_out: frozenset[tuple[str, str]], attributes: str) -> str:
    if not any(f"{key}=" in attributes for key in ("order", "type")):
        return attributes
    stated = split_attributes(attributes)
    if left_out.isdisjoint(stated.items()):
        return attributes
    return "".join(
        f", {key}={value}" for key, value in stated.items() if (key, value) not in left_out
    )


def _check_count(statement: Statement, count: int, offset: int) -> None:
    """Raises ``UnusableInput`` if the operation has a wrong number of operands."""
    opcode, name = statement.opcode, statement.name
    least = LEAST_OPERANDS.get(opcode, 0)
    expected = OPERAND_COUNT.get(opcode)
    if expected is None and count >= least:
        return
    expected_text = f"at least {least}" if expected is None else expected
    raise UnusableInput(
        f"{opcode} {name} has {count} operands, expected {expected_text}", line=offset
    )


def _check_result(body: Body, root: Statement) -> None:
    """Raises ``UnusableInput`` if the root does not have the declared shape."""
    result = body.shapes[root.shape]
    if body.result is not None and not body.result.compatible(result):
        raise UnusableInput(
            f"computation {body.name} declares its result as {shorten(str(body.result))}, but its "
            f"root {root.name} is {shorten(str(result))}",
            line=0,
        )


def _lines(statements: list[Statement]) -> tuple[int, ...]:
    """Return the lines of statements. Inserted elements of tuples have that of the next
    statement.
    """
    takes_line = [0 if "#" in statement.name else 1 for statement in statements]
    return tuple(
        before + 1 - is_own
        for before, is_own in zip(accumulate(takes_line), takes_line, strict=True)
    )


def _find_operands(
    statement: Statement,
    position: dict[str, int],
    statements: list[Statement],
    edges: list[tuple[int, ...]],
    shapes: ShapeTable,
) -> tuple[int, ...]:
    """Return the positions of operands in any form. Adds the elements of tuples that the form
    omits.
    """
    edge: list[int] = []
    for operand in statement.operands:
        index = position.get("%" + operand)
        if index is None:
            index = _find_element(operand, position, statements, edges, shapes)
        if index is None:
            name = operand.partition("#")[0]
            source = position.get("%" + name)
            if source is not None:
                shape = statements[source].shape
                raise UnusableInput(f"{statement.name} reads {operand}, but {name} is {shape}")
            raise UnusableInput(
                f"{statement.name} reads {quoted(operand)}, which is not defined above it"
            )
        edge.append(index)
    if "[" in statement.inside:
        for (declared, operand), index in zip(statement.typed_operands, edge, strict=True):
            shape = statements[index].shape
            if declared and not shapes[declared].compatible(shapes[shape]):
                raise UnusableInput(
                    f"{statement.name} declares its operand {operand} as {shorten(declared)}, but "
                    f"that is {shorten(shape)}"
                )
    return tuple(edge)


def _find_element(
    operand: str,
    position: dict[str, int],
    statements: list[Statement],
    edges: list[tuple[int, ...]],
    shapes: ShapeTable,
) -> int | None:
    """Return the position of ``op#1#0``, or None if there is no such operand or
    element.

    Adds the statements that this compact form omits: one get-tuple-element per index.
    """
    name, *indices = operand.split("#")
    source = position.get("%" + name)
    for index in indices:
        if source is None:
            return None
        elements = shapes[statements[source].shape].elements
        if int(index) >= len(elements):
            return None
        outer, name = name, f"{name}#{index}"
        inner = position.get("%" + name)
        if inner is None:
            shape = str(elements[int(index)])
            shapes.known[shape] = elements[int(index)]
            inner = position["%" + name] = len(statements)
            statements.append(
                Statement("", name, shape, "get-tuple-element", outer, f", index={index}")
            )
            edges.append((source,))
        source = inner
    return source


def _repeated(body: Body) -> UnusableInput:
    """Return the error for two instructions with one name, or two with ROOT."""
    names: set[str] = set()
    root = False
    for offset, statement in enumerate(body.written, 1):
        if statement.name in names:
            return UnusableInput(f"{statement.name} is defined twice", line=offset)
        if statement.root and root:
            return UnusableInput(f"{statement.name} is a second ROOT, expected one", line=offset)
        names.add(statement.name)
        root = root or bool(statement.root)
    raise AssertionError("called where there is one")


def _check_parameters(body: Body) -> None:
    """Raises ``UnusableInput`` unless the parameters are numbered from 0, in any order."""
    parameters = [
        (int(s.inside), s.name, n) for n, s in enumerate(body.written, 1) if s.opcode == "parameter"
    ]
    expected = set(range(len(parameters)))
    for number, name, offset in parameters:
        if number not in expected:
            raise UnusableInput(
                f"{name} is parameter {number}, expected each from 0 to {len(parameters) - 1} once",
                line=offset,
            )
        expected.remove(number)


class Instruction:
    """One instruction of a computation of a module."""

    # Not a frozen dataclass: there are thousands, and all questions ask for their opcodes.
    __slots__ = ("computation", "index", "name", "opcode", "statement")

    def __init__(self, statement: Statement, computation: Computation, index: int) -> None:
        self.statement = statement
        self.computation = computation
        self.index = index
        self.name = statement.name
        self.opcode = statement.opcode

    @property
    def shape(self) -> Shape:
        return self.computation.body.shapes[self.statement.shape]

    @property
    def literal(self) -> str | None:
        """The value of a constant, as written (``{...}`` if the compiler omitted it)."""
        return self.statement.inside.strip() if self.opcode == "constant" else None

    @property
    def plain_inside(self) -> str:
        """The text in the parentheses of a constant or parameter, with one notation for a negative
        zero. The compiler prints ``-0``, and reads that as 0.
        """
        inside = self.statement.inside
        if self.opcode == "constant" and "-0" in inside and self.shape.is_floating:
            return _NEGATIVE_ZERO.sub("-0.0", inside)
        return inside

    @property
    def parameter_number(self) -> int | None:
        """The number of a parameter, from 0."""
        return int(self.statement.inside) if self.opcode == "parameter" else None

    @property
    def is_root(self) -> bool:
        return self.index == self.computation.graph.root

    @property
    def operands(self) -> tuple[Instruction, ...]:
        instructions = self.computation.instructions
        return tuple([instructions[i] for i in self.computation.graph.operands[self.index]])

    @property
    def users(self) -> tuple[Instruction, ...]:
        """The instructions that read this one, each once, in the order of the text."""
        instructions = self.computation.instructions
        return tuple([instructions[i] for i in self.computation.users[self.index]])

    @property
    def user_count(self) -> int:
        return len(self.computation.users[self.index])

    @property
    def attributes(self) -> dict[str, str]:
        """Every attribute, verbatim."""
        return split_attributes(self.statement.attributes)

    def attribute(self, key: str) -> Any:
        """Return one attribute as data (see ``attributes.read_attribute``), or None."""
        if key not in self.statement.attributes:
            return None
        return read_attribute(self.statement.attributes, key)

    @property
    def called(self) -> tuple[Computation, ...]:
        """The computations that this instruction calls, in the printed order."""
        computations = self.computation.module.by_name
        return tuple([computations[n] for n in self.statement.calls if n in computations])

    @property
    def waits_for(self) -> tuple[Instruction, ...]:
        """The control predecessors, without elements of tuples in compact form, whose names no
        other line has.
        """
        predecessors = []
        for name in read_names(self.attributes.get("control-predecessors", "")):
            with suppress(KeyError):
                predecessors.append(self.computation.instruction(name))
        return tuple(predecessors)

    @property
    def metadata(self) -> dict[str, str]:
        return self.attribute("metadata") or {}

    @property
    def op_name(self) -> str | None:
        """The framework's name of the operation."""
        return self.metadata.get("op_name") or None

    @property
    def stack(self) -> tuple[SourceLocation, ...]:
        """The user's call stack, innermost first; empty if the compiler does not record it."""
        return source_stack(self.metadata, self.computation.module.frames)

    @property
    def source(self) -> SourceLocation | None:
        """The user's line."""
        stack = self.stack
        return stack[0] if stack else None

    @property
    def line(self) -> int:
        """The line in the file, from 1."""
        return self._place[0]

    @property
    def column(self) -> int:
        """The column in the file, from 1, at which the instruction begins."""
        return self._place[1]

    @property
    def _place(self) -> tuple[int, int]:
        computation = self.computation
        return computation.module.place(computation.line + computation.graph.lines[self.index])

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}>"


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """One computation of a module. ``line`` is that of its opening line, before desugaring."""

    module: Module
    body: Body
    line: int
    is_entry: bool
    _lazy: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def graph(self) -> Graph:
        """The graph of its instructions. Raises ``UnusableInput`` with file and line if they
        contradict each other.
        """
        try:
            return self.body.graph
        except UnusableInput as error:
            raise self.module.placed(error, self.line) from None

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """In the order of the text: operands before their users."""
        instructions: tuple[Instruction, ...] | None = self._lazy.get("instructions")
        if instructions is None:
            instructions = tuple(
                [
                    Instruction(statement, self, index)
                    for index, statement in enumerate(self.graph.statements)
                ]
            )
            self._lazy["instructions"] = instructions
        return instructions

    @property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the users of each instruction, each once, in the order of the text."""
        users_by_index: tuple[tuple[int, ...], ...] | None = self._lazy.get("users")
        if users_by_index is None:
            lists: list[list[int]] = [[] for _ in self.graph.operands]
            for index, operands in enumerate(self.graph.operands):
                for operand in operands:
                    users = lists[operand]
                    if not users or users[-1] != index:
                        users.append(index)
            users_by_index = self._lazy["users"] = tuple(map(tuple, lists))
        return users_by_index

    @property
    def calls(self) -> tuple[Computation, ...]:
        """The computations that its instructions call, each once, in the order of the text."""
        calls: tuple[Computation, ...] | None = self._lazy.get("calls")
        if calls is None:
            by_name = self.module.by_name
            calls = tuple(by_name[name] for name in self.body.calls if name in by_name)
            self._lazy["calls"] = calls
        return calls

    @property
    def root(self) -> Instruction:
        return self.instructions[self.graph.root]

    @property
    def results(self) -> tuple[Instruction, ...]:
        """The elements of the root if it is a tuple, else the root alone."""
        return self.root.operands if self.root.opcode == "tuple" else (self.root,)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """In the order of their numbers."""
        parameters: tuple[Instruction, ...] | None = self._lazy.get("parameters")
        if parameters is None:
            unsorted = [
                instruction
                for instruction in self.instructions
                if instruction.statement.opcode == "parameter"
            ]
            parameters = tuple(
                sorted(unsorted, key=lambda parameter: parameter.parameter_number or 0)
            )
            self._lazy["parameters"] = parameters
        return parameters

    @property
    def execution_thread(self) -> str:
        value = split_attributes(self.body.footer).get("execution_thread")
        return value.strip('"') if value else "main"

    def cache(self, what: str) -> dict[Any, Any]:
        """Return the facts ``what`` about its instructions that are known so far, such as by their
        positions. They are kept as long as the computation.
        """
        facts: dict[Any, Any] = self._lazy.setdefault(what, {})
        return facts

    def shared_cache(self, what: str) -> dict[Any, Any]:
        """Return a cache that all computations of the module with equal ``contents`` share: only
        for what does not depend on names and metadata.
        """
        shared: dict[Any, Any] = self.module._lazy.setdefault(("shared", what), {})
        facts: dict[Any, Any] = shared.setdefault(self.module.contents[self.name], {})
        return facts

    def instruction(self, name: str) -> Instruction:
        """Return an instruction by name, with or without ``%``. Raises ``KeyError``."""
        by_name: dict[str, int] | None = self._lazy.get("by_name")
        if by_name is None:
            by_name = {s.name: index for index, s in enumerate(self.graph.statements)}
            self._lazy["by_name"] = by_name
        return self.instructions[by_name[name.lstrip("%")]]

    def __repr__(self) -> str:
        return f"<computation {self.name}>"


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One HLO module, as one file shows it.

    ``header`` holds the attributes after its name, verbatim. ``positions`` holds the line and
    column in the user's text of each line that was read, if the text is not in the compiler's own
    form.
    """

    name: str
    header: str
    frames: StackFrames | None
    bodies: tuple[Body, ...]
    lines: tuple[int, ...]
    entry_index: int
    file: str | None = None
    positions: tuple[tuple[int, int], ...] | None = None
    _lazy: dict[Hashable, Any] = field(default_factory=dict, repr=False, init=False)

    def with_file(self, file: str | None) -> Module:
        return self if file == self.file else replace(self, file=file)

    @property
    def computations(self) -> tuple[Computation, ...]:
        """In the order of the text."""
        computations: tuple[Computation, ...] | None = self._lazy.get("computations")
        if computations is None:
            computations = tuple(
                Computation(self, body, line, index == self.entry_index)
                for index, (body, line) in enumerate(zip(self.bodies, self.lines, strict=True))
            )
            self._lazy["computations"] = computations
        return computations

    @property
    def by_name(self) -> dict[str, Computation]:
        by_name: dict[str, Computation] | None = self._lazy.get("by_name")
        if by_name is None:
            by_name = self._lazy["by_name"] = {c.name: c for c in self.computations}
        return by_name

    @property
    def entry(self) -> Computation:
        return self.computations[self.entry_index]

    @property
    def contents(self) -> dict[str, int]:
        """Numbers of the computations, by name. Computations with equal numbers have the same
        instructions in the same order, but for names and metadata, and so have those they call. No
        other is like the entry.
        """
        contents: dict[str, int] | None = self._lazy.get("contents")
        if contents is None:
            called_computations = [
                computation for computation in self.computations if not computation.is_entry
            ]
            contents = self._lazy["contents"] = {
                **_number_contents(called_computations),
                self.entry.name: -1,
            }
        return contents

    @property
    def outermost_fusions(self) -> dict[Computation, Instruction]:
        """The outermost fusion of each fused computation, in the order of the text."""
        fusions: dict[Computation, Instruction] | None = self._lazy.get("fusions")
        if fusions is None:
            callers: dict[Computation, Instruction] = {}
            for computation in self.computations:
                for index, statement in enumerate(computation.graph.statements):
                    if statement.opcode == "fusion":
                        caller = computation.instructions[index]
                        for callee in caller.called[:1]:
                            callers.setdefault(callee, caller)
            outer: dict[Computation, Instruction] = {}
            for computation in reversed(self.computations):  # callers come below
                if computation in callers:
                    caller = callers[computation]
                    outer[computation] = outer.get(caller.computation, caller)
            fusions = self._lazy["fusions"] = {caller: outer[caller] for caller in callers}
        return fusions

    @property
    def callers(self) -> dict[Computation, tuple[Instruction, ...]]:
        """The instructions that call each reachable computation, in the order of the text."""
        all_callers: dict[Computation, tuple[Instruction, ...]] | None = self._lazy.get("callers")
        if all_callers is None:
            callers_of: dict[Computation, dict[Instruction, None]] = {}
            for computation in self.reachable():
                for caller in computation.instructions if computation.calls else ():
                    for callee in caller.called:
                        callers_of.setdefault(callee, {})[caller] = None
            all_callers = self._lazy["callers"] = {
                computation: tuple(callers) for computation, callers in callers_of.items()
            }
        return all_callers

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the header, verbatim."""
        return split_attributes(self.header)

    @property
    def is_scheduled(self) -> bool:
        return self.attributes.get("is_scheduled") == "true"

    @property
    def instruction_count(self) -> int:
        return sum(len(computation.graph.statements) for computation in self.computations)

    @property
    def edge_count(self) -> int:
        """The number of operand slots. A value that one instruction reads twice counts twice."""
        return sum(
            len(operands)
            for computation in self.computations
            for operands in computation.graph.operands
        )

    def opcode_histogram(self) -> Counter[str]:
        return Counter(s.opcode for c in self.computations for s in c.graph.statements)

    def walk(self) -> Iterator[Instruction]:
        """Yield every instruction of every computation."""
        for computation in self.computations:
            yield from computation.instructions

    def reachable(self) -> tuple[Computation, ...]:
        """The computations that the entry calls, directly or not, the entry last.

        A pass can leave computations that nothing calls; the compiler still prints them.
        """
        callee = {
            computation.name
            for computation in reachable([self.entry], lambda computation: computation.calls)
        }
        called_computations = [c for c in self.computations if c.name in callee and not c.is_entry]
        return (*called_computations, self.entry)

    def to_networkx(self) -> networkx.MultiDiGraph[Instruction]:
        """Return the instructions of all computations and their operands as a graph.

        Nodes are the instructions, in the order of the text, with ``name``, ``opcode``, ``shape``
        and ``computation`` as text. An edge leads from an operand to its user, one for each slot,
        with ``operand``, the index of the slot. Control dependencies and calls are not in the
        graph.

        Raises ``UnusableInput`` like ``check``.
        """
        import networkx  # imported here so that commands do not wait for it

        self.check()
        graph: networkx.MultiDiGraph[Instruction] = networkx.MultiDiGraph(name=self.name)
        for instruction in self.walk():
            graph.add_node(
                instruction,
                name=instruction.name,
                opcode=instruction.opcode,
                shape=str(instruction.shape),
                computation=instruction.computation.name,
            )
        for user in self.walk():
            graph.add_edges_from(
                (operand, user, {"operand": index}) for index, operand in enumerate(user.operands)
            )
        return graph

    def release(self) -> None:
        """Forget what was found out, and with it the cycles in which instructions refer to each
        other, which only Python's collector would free.
        """
        for computation in self.computations:
            computation._lazy.clear()
        self._lazy.clear()

    def check(self) -> None:
        """Raises ``UnusableInput`` with file and line if the module contradicts itself.

        Reading a file finds errors within a line; this finds errors between lines.
        """
        if self._lazy.get("is_sound"):
            return
        self._lazy["is_sound"] = False
        defined: set[str] = set()
        with collector_paused():
            for body, line in zip(self.bodies, self.lines, strict=True):
                try:
                    _ = body.graph
                    _check_names(body, defined)
                except UnusableInput as error:
                    raise self.placed(error, line) from None
                defined.add(body.name)
        self._lazy["is_sound"] = True

    @property
    def is_contradictory(self) -> bool:
        """Whether ``check`` has found that the module contradicts itself."""
        return self._lazy.get("is_sound") is False

    def placed(self, error: UnusableInput, line: int) -> UnusableInput:
        """Return an error of a body (line from the opening one) with its place in the
        user's text.
        """
        line, column = self.place(line + (error.line or 0))
        return UnusableInput(shorten(error.problem, 300), file=self.file, line=line, column=column)

    def place(self, line: int) -> tuple[int, int]:
        """Return the line and column in the user's text of a line that was read."""
        return (line, 3) if self.positions is None else self.positions[line - 1]

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same content. The notation of the text does not count."""
        if not isinstance(other, Module):
            return NotImplemented
        return (
            (self.name, self.attributes, self.entry_index)
            == (other.name, other.attributes, other.entry_index)
            and (self.frames.text.split() if self.frames else [])
            == (other.frames.text.split() if other.frames else [])
            and len(self.bodies) == len(other.bodies)
            and all(map(_say_the_same, self.computations, other.computations))
        )

    def __hash__(self) -> int:
        return hash((self.name, len(self.bodies)))

    def __repr__(self) -> str:
        return f"<module {self.name}, {len(self.bodies)} computations>"


def _check_names(body: Body, defined: set[str]) -> None:
    """Check that names in attributes are defined above: computations in the module, instructions in
    ``body``.
    """
    if not defined.issuperset(body.calls):
        name, offset = next(call for call in body.calls.items() if call[0] not in defined)
        caller = body.written[offset - 1].name
        raise UnusableInput(
            f"{caller} calls {shorten(name)}, which is not defined above it", line=offset
        )
    if not body._waits_checked:
        _check_waits(body)
        body._waits_checked = True


def _check_waits(body: Body) -> None:
    """Check that control predecessors are defined above. An element of a tuple in compact form
    (``%op#1``) has a name that the text only shows here.
    """
    lines: dict[str, int] = {}
    unknown = 0 if len(body.graph.statements) > len(body.written) else len(body.written)
    for offset, statement in enumerate(body.written, 1):
        if "control-pre" in statement[5]:
            names = split_attributes(statement.attributes).get("control-predecessors", "")
            lines = lines or {
                statement_of.name: line for line, statement_of in enumerate(body.written, 1)
            }
            for name in read_names(names):
                if lines.get(name, unknown) >= offset:
                    raise UnusableInput(
                        f"{statement.name} waits for {shorten(name)}, which is not defined above "
                        "it",
                        line=offset,
                    )


def _say_the_same(first: Computation, second: Computation) -> bool:
    return (
        first.name == second.name
        and first.body.footer == second.body.footer
        and first.graph.operands == second.graph.operands
        and first.graph.root == second.graph.root
        and all(
            (a.name, a.opcode, a.shape) == (b.name, b.opcode, b.shape)
            and (
                a.statement.attributes == b.statement.attributes
                or read_attributes(a.statement[5]) == read_attributes(b.statement[5])
            )
            and (a.opcode not in _NO_OPERANDS or a.plain_inside == b.plain_inside)
            for a, b in zip(first.instructions, second.instructions, strict=True)
        )
    )


def _number_contents(computations: list[Computation]) -> dict[str, int]:
    """See ``Module.contents``."""
    contents: dict[str, int] = {}
    numbers: dict[Hashable, int] = {}
    plain = {"": ""}  # attributes without what has no meaning
    for computation in computations:
        graph = computation.graph
        lines: list[Hashable] = []
        for statement, edge in zip(graph.statements, graph.operands, strict=True):
            _, _, shape, opcode, inside, attributes = statement
            meaning = plain.get(attributes)
            if meaning is None:
                meaning = plain[attributes] = _WITHOUT_MEANING.sub("", attributes)
            inputs = inside if opcode in _NO_OPERANDS else edge
            callees: tuple[Hashable, ...] = ()
            if opcode not in NEVER_CALL:
                # Callees come above; what does not is like nothing else.
                callees = tuple([contents.get(name, name) for name in called_names(attributes)])
            lines.append((shape, opcode, inputs, meaning, callees))
        content = graph.root, computation.body.footer, tuple(lines)
        contents[computation.name] = numbers.setdefault(content, len(numbers))
    return contents
