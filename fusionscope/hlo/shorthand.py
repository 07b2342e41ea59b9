"""What the compiler's parser lets people leave out, written out: shapes and async computations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from fusionscope.errors import UnusableInput
from fusionscope.hlo.attributes import read_value, split_attributes
from fusionscope.hlo.grammar import shorten
from fusionscope.hlo.model import Statement
from fusionscope.hlo.opcodes import OPCODES
from fusionscope.hlo.shape import TUPLE, Layout, Shape, ShapeTable
from fusionscope.hlo.text import INSTRUCTION, NAME

Place = tuple[int, int]

_INSTRUCTION = re.compile(rf"\s*{INSTRUCTION}", re.DOTALL)
_OPENING = re.compile(rf"(?:ENTRY\s+)?%?({NAME})(?:[^\w.\-].*)?\{{", re.DOTALL)
# What an asynchronous operation says of itself, and what also of the operation that it wraps.
_OUTSIDE = frozenset({"async_execution_thread", "control-predecessors", "sharding"})
_BOTH = frozenset({"backend_config", "frontend_attributes", "metadata"})

_ELEMENTWISE = frozenset(
    """acos acosh add and asin asinh atan2 atanh cbrt ceil cosine cosh count-leading-zeros
    divide erf exponential exponential-minus-one floor log log-plus-one logistic maximum minimum
    mulhi multiply negate not or popcnt power remainder round-nearest-afz round-nearest-even rsqrt
    shift-left shift-right-arithmetic shift-right-logical sign sine sinh sqrt subtract tan tanh
    xor""".split()
)
_LIKE_FIRST = frozenset("add-dependency cholesky copy domain reverse while".split())
_COMPLEX_PARTS = {"c64": "f32", "c128": "f64"}
_COMPLEX = {part: whole for whole, part in _COMPLEX_PARTS.items()}


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
        for index in indices:
            shape = shape.elements[int(index)]
        operands.append(shape)
    called = [table[results[name]] for name in statement.calls if name in results]
    attributes = split_attributes(statement.attributes)
    inferred = _inferred(statement.opcode, operands, called, attributes)
    if inferred is None:
        raise UnusableInput(
            f"{statement.name} has no shape, and that of this {statement.opcode} cannot be told "
            "from its operands, expected one such as f32[2,3] before the operation"
        )
    return inferred


def _inferred(
    opcode: str, operands: list[Shape], called: list[Shape], attributes: dict[str, str]
) -> Shape | None:
    """The shape of a result where it follows from few words, else None."""
    if opcode == "tuple":
        return Shape(TUPLE, elements=tuple(operands))
    if opcode == "call" and called:
        return called[0]
    if not operands:
        return {"partition-id": Shape("u32"), "replica-id": Shape("u32")}.get(opcode)
    first = operands[0]
    dimensions = _integers(attributes, "dimensions")
    if opcode == "get-tuple-element":
        index = read_value("index", attributes.get("index", ""))
        return first.elements[index] if index in range(len(first.elements)) else None
    if opcode == "sort" and len(operands) > 1:
        return Shape(TUPLE, elements=tuple(operands))
    if opcode in _LIKE_FIRST or opcode == "sort":
        return first
    if not all(operand.is_array for operand in operands):
        return None
    if opcode == "transpose" and sorted(dimensions) == list(range(first.rank)):
        layout = first.layout or Layout(tuple(reversed(range(first.rank))))
        order = tuple(dimensions.index(dimension) for dimension in layout.minor_to_major)
        return replace(_array(first, dimensions), layout=replace(layout, minor_to_major=order))
    if opcode == "reduce" and len(operands) == 2:
        return _array(first, (d for d in range(first.rank) if d not in dimensions))
    if any(operand.dimensions != first.dimensions for operand in operands):
        return None
    if opcode in ("compare", "is-finite"):
        return replace(first, element_type="pred")
    if opcode == "select":
        return replace(first, element_type=operands[-1].element_type)
    if opcode == "complex":
        return replace(first, element_type=_COMPLEX.get(first.element_type, ""))
    if opcode in ("abs", "real", "imag"):
        part = _COMPLEX_PARTS.get(first.element_type, first.element_type)
        return replace(first, element_type=part)
    return first if opcode in _ELEMENTWISE else None


def _array(shape: Shape, kept: Iterable[int]) -> Shape:
    """An array of some dimensions of ``shape``."""
    kept = tuple(kept)
    return Shape(
        shape.element_type,
        tuple(shape.dimensions[dimension] for dimension in kept),
        tuple(shape.dynamic[dimension] for dimension in kept),
    )


def _integers(attributes: dict[str, str], key: str) -> tuple[int, ...]:
    value = read_value(key, attributes.get(key, ""))
    return value if isinstance(value, tuple) else ()
