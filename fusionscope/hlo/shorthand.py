"""What the compiler's parser lets people leave out, written out: shapes and async computations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count

from fusionscope.errors import UnusableInput
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.grammar import shorten
from fusionscope.hlo.inference import Operation, infer_shape
from fusionscope.hlo.model import Statement
from fusionscope.hlo.opcodes import OPCODES
from fusionscope.hlo.shape import Shape, ShapeTable
from fusionscope.hlo.text import INSTRUCTION, NAME

Place = tuple[int, int]

_INSTRUCTION = re.compile(rf"\s*{INSTRUCTION}", re.DOTALL)
_OPENING = re.compile(rf"(?:ENTRY\s+)?%?({NAME})(?:[^\w.\-].*)?\{{", re.DOTALL)
# What an asynchronous operation says of itself, and what also of the operation that it wraps.
_OUTSIDE = frozenset({"async_execution_thread", "control-predecessors", "sharding"})
_BOTH = frozenset({"backend_config", "frontend_attributes", "metadata"})


def is_async_shorthand(opcode: str) -> bool:
    """Whether ``opcode`` says start, update or done of an operation that has no such opcodes."""
    operation, _, step = opcode.rpartition("-")
    return step in ("start", "update", "done") and operation in OPCODES and opcode not in OPCODES


def write_out(lines: Sequence[str], places: Sequence[Place]) -> tuple[list[str], list[Place]]:
    """The lines of a module with every shape, and with async-start for other starts.

    Takes and returns lines in the compiler's own form and their places in the text. Raises
    ``UnusableInput`` where a shape is left out and cannot be told from operands.
    """
    table = ShapeTable()
    done: list[tuple[str, Place]] = []
    computation: list[tuple[str, Place]] = []
    name, rooted = "", False
    results: dict[str, str] = {}  # shapes of the roots of computations
    shapes: dict[str, str] = {}  # of the instructions above
    taken = {found[1] for line in lines if (found := _OPENING.fullmatch(line))}
    names = (name for name in _numbered("async_wrapped") if name not in taken)
    for line, place in zip(lines, places, strict=True):
        found = _INSTRUCTION.fullmatch(line)
        if found is not None:
            statement = Statement(*found.groups(""))
            try:
                if not statement.shape:
                    shape = _infer(statement, shapes, results, table)
                    statement = statement._replace(shape=str(shape))
                    line = _line(statement)
                elif is_async_shorthand(statement.opcode):
                    statement, wrapped = _written_out(statement, names, table)
                    done += [(inner, place) for inner in wrapped]
                    line = _line(statement)
            except UnusableInput as error:
                raise UnusableInput(error.problem, line=place[0], column=place[1]) from None
            shapes[statement.name] = statement.shape
            if statement.root or not rooted:
                results[name] = statement.shape
            rooted = rooted or bool(statement.root)
        elif opening := _OPENING.fullmatch(line):
            done += computation
            computation, name, shapes, rooted = [], opening[1], {}, False
        computation.append((line, place))
    done += computation
    return [line for line, _ in done], [place for _, place in done]


def _line(statement: Statement) -> str:
    root, name, shape, opcode, inside, attributes = statement
    return f"  {root}%{name} = {shape} {opcode}({inside}){attributes}"


def _written_out(
    statement: Statement, names: Iterator[str], table: ShapeTable
) -> tuple[Statement, list[str]]:
    """The plain form of an asynchronous operation, and the lines of what it wraps, if it starts."""
    opcode, _, step = statement.opcode.rpartition("-")
    if step != "start":
        return statement._replace(opcode=f"async-{step}"), []
    elements = table[statement.shape].elements
    if len(elements) < 2 or len(elements[0].elements) != len(statement.operands):
        raise UnusableInput(
            f"{statement.name} is {shorten(statement.shape)}, expected a tuple of its operands' "
            "shapes, its result, and what it needs meanwhile"
        )
    name = next(names)
    attributes = split_attributes(statement.attributes)
    inside = {key: value for key, value in attributes.items() if key not in _OUTSIDE}
    outside = {key: value for key, value in attributes.items() if key in _OUTSIDE | _BOTH}
    parameters = dict(zip(_numbered("%async_param"), elements[0].elements, strict=False))
    thread = attributes.get("async_execution_thread")
    lines = [
        f"%{name} {{",
        *(
            f"  {parameter} = {shape} parameter({number})"
            for number, (parameter, shape) in enumerate(parameters.items())
        ),
        f"  ROOT %{opcode} = {elements[1]} {opcode}({', '.join(parameters)}){_attributes(inside)}",
        f"}}, execution_thread={thread}" if thread else "}",
    ]
    outside = {"calls": f"%{name}"} | outside
    return statement._replace(opcode="async-start", attributes=_attributes(outside)), lines


def _numbered(name: str) -> Iterator[str]:
    """``name``, ``name.1``, ``name.2`` and so on."""
    yield name
    yield from (f"{name}.{number}" for number in count(1))


def _attributes(values: dict[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in values.items())


def _infer(
    statement: Statement, shapes: dict[str, str], results: dict[str, str], table: ShapeTable
) -> Shape:
    """The shape of a result, from the shapes of the instructions above it."""
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
    called = [table[results[name]] for name in statement.calls if name in results]
    attributes = split_attributes(statement.attributes)
    inferred = infer_shape(Operation(statement.opcode, operands, called, attributes))
    if inferred is None:
        raise UnusableInput(
            f"{statement.name} has no shape, and that of this {statement.opcode} cannot be told "
            "from its operands, expected one such as f32[2,3] before the operation"
        )
    return inferred
