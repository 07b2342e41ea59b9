"""Writes out what the compiler's parser lets people omit: shapes and async computations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from fusionscope.errors import UnusableInput, shorten
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.inference import Operation, infer_shape
from fusionscope.hlo.model import Statement
from fusionscope.hlo.opcodes import LEAST_OPERANDS, OPCODES, OPERAND_COUNT
from fusionscope.hlo.shape import Shape, ShapeTable
from fusionscope.hlo.text import INSTRUCTION, NAME

Place = tuple[int, int]

_OPENING = re.compile(rf"(?:ENTRY\s+)?%?({NAME})(?:[^\w.\-].*)?\{{", re.DOTALL)
# Attributes of an asynchronous operation, and those that its wrapped operation has too.
_OUTSIDE = frozenset(
    {"async_execution_thread", "control-predecessors", "output_to_operand_aliasing", "sharding"}
)
_BOTH = frozenset({"backend_config", "frontend_attributes", "metadata", "statistics"})
_ALIASED_INSIDE = frozenset({"custom-call", "fusion"})


def is_async_shorthand(opcode: str) -> bool:
    """Return whether ``opcode`` is the start, update or done of an operation without
    such opcodes.
    """
    operation, _, step = opcode.rpartition("-")
    return (
        step in ("start", "update", "done")
        and operation in OPCODES
        and opcode not in OPCODES
        and f"{operation}-done" not in OPCODES
    )


def write_out(lines: Sequence[str], places: Sequence[Place]) -> tuple[list[str], list[Place]]:
    """Return the lines of a module with every shape, and with async-start for other
    starts.

    Takes and returns lines in the compiler's own form and their places in the text. Raises
    ``UnusableInput`` if a shape is omitted and cannot be inferred.
    """
    instruction = re.compile(rf"\s*{INSTRUCTION}", re.DOTALL)  # few texts need it
    table = ShapeTable()
    lines_with_places: list[tuple[str | _Wrapped, Place]] = []
    computation: list[tuple[str, Place]] = []
    name, rooted = "", False
    results: dict[str, str] = {}  # shapes of the roots of computations
    parameters: dict[str, dict[str, str]] = {}  # shapes by number, of each computation
    shapes: dict[str, str] = {}  # of the instructions above
    wrapped: dict[str, _Wrapped] = {}  # by the asynchronous operations above
    names_taken = {match[1] for line in lines if (match := _OPENING.fullmatch(line))}
    names = (name for name in _numbered("async_wrapped") if name not in names_taken)
    for line, place in zip(lines, places, strict=True):
        match = instruction.fullmatch(line)
        if match is not None:
            statement = Statement(*match.groups(""))
            try:
                if not statement.shape:
                    shape = _infer(statement, shapes, results, table)
                    statement = statement._replace(shape=str(shape))
                    line = _line(statement)
                elif is_async_shorthand(statement.opcode):
                    statement = _written_out(statement, names, wrapped, table)
                    line = _line(statement)
                    if statement.opcode == "async-start":
                        inner = wrapped[statement.name]
                        if inner.opcode in ("call", "fusion") and statement.calls:
                            inner.call(parameters, results)
                        lines_with_places.append((inner, place))
                elif statement.opcode in ("async-update", "async-done"):
                    _pass_on(statement, wrapped)
            except UnusableInput as error:
                raise UnusableInput(error.problem, line=place[0], column=place[1]) from None
            shapes[statement.name] = statement.shape
            if statement.opcode == "parameter":
                parameters.setdefault(name, {})[statement.inside.strip()] = statement.shape
            if statement.root or not rooted:
                results[name] = statement.shape
            rooted = rooted or bool(statement.root)
        elif opening := _OPENING.fullmatch(line):
            lines_with_places += computation
            computation, name, shapes, rooted = [], opening[1], {}, False
            wrapped = {}
        computation.append((line, place))
    lines_with_places += computation
    flat = [
        (line, place)
        for part, place in lines_with_places
        for line in ([part] if isinstance(part, str) else part.lines())
    ]
    return [line for line, _ in flat], [place for _, place in flat]


@dataclass(slots=True)
class _Wrapped:
    """The computation of an asynchronous operation that is written as ``opcode-start``.

    ``parameters`` and ``result`` are shapes, ``declared`` those of the operands that the start
    names. An update can add operands.
    """

    name: str
    opcode: str
    declared: tuple[str, ...]
    parameters: list[str]
    result: str
    attributes: dict[str, str]
    thread: str | None
    table: ShapeTable

    @property
    def called(self) -> str:
        """The name of the computation that the operation calls, if it is a call or fusion."""
        return self.attributes.get("calls", self.attributes.get("to_apply", "")).strip(" %")

    def update(self, parameters: Iterable[str], result: str | None) -> None:
        """Replace shapes by those given later, unless they are compatible."""
        for number, shape in enumerate(parameters):
            if number == len(self.parameters):
                self.parameters.append(shape)
            elif not self.table[shape].compatible(self.table[self.parameters[number]]):
                self.parameters[number] = shape
        if result is not None and not self.table[result].compatible(self.table[self.result]):
            self.result = result

    def call(self, parameters: dict[str, dict[str, str]], results: dict[str, str]) -> None:
        """Take the shapes, with their layouts, from the called computation if it is given."""
        self.parameters[:] = parameters.get(self.called, {}).values() or self.parameters
        self.result = results.get(self.called, self.result)

    def lines(self) -> list[str]:
        parameters = dict(zip(_numbered("%async_param"), self.parameters, strict=False))
        operation = f"{self.result} {self.opcode}({', '.join(parameters)})"
        return [
            f"%{self.name} {{",
            *(
                f"  {parameter} = {shape} parameter({number})"
                for number, (parameter, shape) in enumerate(parameters.items())
            ),
            f"  ROOT %{self.opcode} = {operation}{_attributes(self.attributes)}",
            f"}}, execution_thread={self.thread}" if self.thread else "}",
        ]


def _line(statement: Statement) -> str:
    root, name, shape, opcode, inside, attributes = statement
    return f"  {root}%{name} = {shape} {opcode}({inside}){attributes}"


def _written_out(
    statement: Statement, names: Iterator[str], wrapped: dict[str, _Wrapped], table: ShapeTable
) -> Statement:
    """Return the plain form of an asynchronous operation. Adds the wrapped operation to
    ``wrapped``.
    """
    opcode, _, step = statement.opcode.rpartition("-")
    plain = statement._replace(opcode=f"async-{step}")
    shape = table[statement.shape]
    if step != "done" and (len(shape.elements) < 2 or not shape.elements[0].is_tuple):
        raise UnusableInput(
            f"{statement.name} is {shorten(statement.shape)}, expected a tuple of its operands' "
            "shapes, its result, and what it needs meanwhile"
        )
    if step != "start":
        started = _pass_on(statement, wrapped)
        if started is not None:
            if started.opcode != opcode:
                raise UnusableInput(
                    f"{statement.name} goes on with {opcode}, but what it reads is {started.opcode}"
                )
            if step == "update":
                inner, result = shape.elements[:2]
                started.update(map(str, inner.elements), str(result))
            else:
                started.update(started.declared, str(shape))
        return plain
    elements = shape.elements
    attributes = split_attributes(statement.attributes)
    outside = _OUTSIDE
    if opcode in _ALIASED_INSIDE:
        outside = outside - {"output_to_operand_aliasing"}
    declared = tuple(str(element) for element in elements[0].elements)
    least = OPERAND_COUNT.get(opcode, LEAST_OPERANDS.get(opcode, 0))
    inside = {key: value for key, value in attributes.items() if key not in outside}
    outer_attributes = {key: value for key, value in attributes.items() if key in outside | _BOTH}
    wrapped[statement.name] = wrapper = _Wrapped(
        next(names),
        opcode,
        declared,
        [*declared, *["f32[1]"] * (least - len(declared))],
        str(elements[1]),
        inside,
        attributes.get("async_execution_thread"),
        table,
    )
    return plain._replace(attributes=_attributes({"calls": f"%{wrapper.name}"} | outer_attributes))


def _pass_on(statement: Statement, wrapped: dict[str, _Wrapped]) -> _Wrapped | None:
    """Return the operation that the chain of an update or done wraps, if it began in shorthand."""
    started = wrapped.get(next(iter(statement.operands), ""))
    if started is not None:
        wrapped[statement.name] = started
        thread = split_attributes(statement.attributes).get("async_execution_thread")
        if thread is not None and thread != (started.thread or '"main"'):
            raise UnusableInput(
                f"{statement.name} runs on {thread}, but what it reads was started on "
                f"{started.thread or 'main'}"
            )
    return started


def _numbered(name: str) -> Iterator[str]:
    """Yield ``name``, ``name.1``, ``name.2`` and so on."""
    yield name
    yield from (f"{name}.{number}" for number in count(1))


def _attributes(values: dict[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in values.items())


def _infer(
    statement: Statement, shapes: dict[str, str], results: dict[str, str], table: ShapeTable
) -> Shape:
    """Return the shape of a result, inferred from the shapes of the instructions above it."""
    operands: list[Shape] = []
    for operand in statement.operands:
        name, *indices = operand.split("#")
        if name not in shapes:
            raise UnusableInput(f"{statement.name} reads {name}, which is not defined above it")
        shape = table[shapes[name]]
        for index in map(int, indices):
            if index >= len(shape.elements):
                raise UnusableInput(
                    f"{statement.name} reads {operand}, but {name} is {shorten(shapes[name])}"
                )
            shape = shape.elements[index]
        operands.append(shape)
    computations = [table[results[name]] for name in statement.calls if name in results]
    attributes = split_attributes(statement.attributes)
    inferred = infer_shape(Operation(statement.opcode, operands, computations, attributes))
    if inferred is None:
        raise UnusableInput(
            f"{statement.name} has no shape, and that of this {statement.opcode} cannot be told "
            "from its operands, expected one such as f32[2,3] before the operation"
        )
    return inferred
