"""Keys for operations: equal for instructions that compute the same from the same operands."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Hashable, Iterator
from itertools import accumulate
from operator import mul
from typing import TypeAlias

from fusionscope.grouping import Numbers
from fusionscope.history.meaning import (
    AttributeMeaning,
    is_commutative,
    normal_attributes,
    normal_constant,
    normal_shape,
    says,
)
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import read_names
from fusionscope.hlo.literals import is_elided
from fusionscope.hlo.model import Body, Statement
from fusionscope.hlo.views import COPIES, PASSED_ON

_ARGUMENT = re.compile(r"args\[\d+\]|[A-Za-z_]\w*")
_MEMORY_SPACE = re.compile(r"S\(\d+\)")
# Each operand gives one element of the result, independent of the others: passes combine several
# such operations, or split one into start and done.
COLLECTIVES = frozenset({"all-gather", "all-reduce", "collective-permute", "reduce-scatter"})
# Their value is that of their first operand.
_IDENTITIES = frozenset(
    [*PASSED_ON, "async-done", "async-update", "copy-done", "copy-start"]
    + [f"{opcode}-done" for opcode in COLLECTIVES]
)
# Their value is that of the root of the called computation.
TRANSPARENT = frozenset({"fusion", "call", "async-start"})
NOTHING_COMPUTED = TRANSPARENT | {"parameter", "tuple"}
# Their computations run instruction by instruction, each a kernel.
CONTROL = frozenset({"while", "conditional", "call"})


# A value is a number; the value of a tuple that is taken apart has a value for each element.
Value: TypeAlias = "int | tuple[Value, ...]"


def flatten(value: Value) -> Iterator[int]:
    """Yield the numbers in a value."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, int):
            yield part
        else:
            pending.extend(reversed(part))


class Operations:
    """Keys of operations, with a cache.

    One instance serves all modules that are compared with each other. ``elided`` are the shapes
    (plain) whose constants one of them omits, so that the names identify them in all.
    """

    def __init__(self, elided: frozenset[str] = frozenset()) -> None:
        self._elided = elided
        self._attributes: dict[str, Hashable] = {}
        self._shapes: dict[str, str] = {}
        self._layouts: dict[str, str] = {}
        self._calls: dict[str, tuple[str, ...]] = {}
        self._expressions: dict[Body, tuple[int, ...]] = {}
        self._are_free: dict[tuple[str, str], bool] = {}
        self._numbers = Numbers()

    def key(self, instruction: Instruction, operands: tuple[Hashable, ...]) -> Hashable:
        """Return the key of an instruction. ``operands`` are the keys of its operands."""
        statement = instruction.statement
        shape = self.plain_shape(statement.shape)
        opcode = statement.opcode
        if opcode == "constant":
            if self.is_elided(statement):  # the name identifies it
                return opcode, shape, re.sub(r"[.\-]", "_", statement.name)
            return opcode, shape, normal_constant(statement)
        if opcode in COPIES:
            # The same elements: a plain reshape, or another order in memory.
            if opcode == "reshape" or (opcode == "bitcast" and self._moves_nothing(instruction)):
                return "reshape", shape, operands
            shape = self.laid_out(statement.shape)
        return opcode, shape, operands, *self.details(instruction)

    def is_elided(self, statement: Statement) -> bool:
        """Return whether the value of a constant is omitted in one of the modules."""
        return statement.opcode == "constant" and (
            is_elided(statement.inside)
            or bool(self._elided and self.plain_shape(statement.shape) in self._elided)
        )

    def _moves_nothing(self, bitcast: Instruction) -> bool:
        shapes = bitcast.operands[0].statement.shape, bitcast.statement.shape
        is_free = self._are_free.get(shapes)
        if is_free is None:
            is_free = self._are_free[shapes] = _moves_nothing(bitcast)
        return is_free

    def details(self, instruction: Instruction) -> tuple[Hashable, tuple[int, ...]]:
        """Return what an operation computes with, apart from its operands."""
        statement = instruction.statement
        callees: tuple[int, ...] = ()
        if statement.opcode not in CONTROL:
            names = self.called(statement)
            if names:
                computations = instruction.computation.module.by_name
                callees = tuple(
                    self.expression(computations[name]) for name in names if name in computations
                )
        return self._material(statement.attributes), callees

    def called(self, statement: Statement) -> tuple[str, ...]:
        """Return the names of the called computations, in an order independent of the text."""
        names = self._calls.get(statement.attributes)
        if names is None:
            names = statement.calls
            if len(names) > 1:
                attributes = normal_attributes(statement.attributes)
                keys = sorted(key for key in attributes if says(key) is AttributeMeaning.CALLS)
                names = tuple(name for key in keys for name in read_names(attributes[key]))
            self._calls[statement.attributes] = names
        return names

    def plain_shape(self, text: str) -> str:
        """Return a shape without layouts."""
        plain = self._shapes.get(text)
        if plain is None:
            plain = self._shapes[text] = plain_shape(text)
        return plain

    def laid_out(self, text: str) -> str:
        """Return a shape with layouts, without memory spaces."""
        shape = self._layouts.get(text)
        if shape is None:
            shape = self._layouts[text] = normal_shape(_MEMORY_SPACE.sub("", text))
        return shape

    def expression(self, computation: Computation) -> int:
        """Return a number for what a small computation (of a reduction, a sort) computes."""
        return self.values(computation)[computation.graph.root]

    def values(self, computation: Computation) -> tuple[int, ...]:
        """Return a number for what each instruction computes from the parameters."""
        body = computation.body
        expressions = self._expressions.get(body)
        if expressions is None:
            graph = computation.graph
            values: list[int] = []
            for statement, operands in zip(graph.statements, graph.operands, strict=True):
                read = [values[operand] for operand in operands]
                if is_commutative(statement):
                    read.sort()
                key = (
                    statement.opcode,
                    self.plain_shape(statement.shape),
                    _content(statement),
                    tuple(read),
                    self._material(statement.attributes),
                )
                values.append(self._numbers[key])
            expressions = self._expressions[body] = tuple(values)
        return expressions

    def _material(self, attributes: str) -> Hashable:
        """Return the attributes that determine the value."""
        material = self._attributes.get(attributes)
        if material is None:
            material = self._attributes[attributes] = tuple(
                sorted(
                    (key, value)
                    for key, value in normal_attributes(attributes).items()
                    if says(key) is AttributeMeaning.VALUE
                )
            )
        return material


def _content(statement: Statement) -> str:
    """Return the value of a constant or the number of a parameter; nothing for others."""
    if statement.opcode == "constant":
        return normal_constant(statement)
    return statement.inside if statement.opcode == "parameter" else ""


def elided_shapes(*modules: Module) -> frozenset[str]:
    """Return the shapes (plain) of constants whose values the compiler omitted. It omits them by
    their size: one module omits all of a shape, or none.
    """
    return frozenset(
        plain_shape(statement.shape)
        for module in modules
        for body in module.bodies
        for statement in body.written
        if statement[3] == "constant" and is_elided(statement[4])
    )


def plain_shape(text: str) -> str:
    """Return a shape without layouts, spaces and comments."""
    return re.sub(r"\{[^{}]*\}|\s|/\*.*?\*/", "", text)


def is_passed_on(opcode: str) -> bool:
    """Return whether the value of an instruction is that of its first operand, if it has one."""
    return opcode in _IDENTITIES


def is_free_reshape(instruction: Instruction) -> bool:
    """Return whether a reshape moves nothing, and so is a bitcast.

    Only the compiler knows this of reshapes between tiled layouts.
    """
    return (
        instruction.opcode == "reshape"
        and not (instruction.shape.layout and "T(" in instruction.shape.layout.properties)
        and _moves_nothing(instruction)
    )


def is_view(instruction: Instruction) -> bool:
    """Return whether the result is the memory of the operand in another shape."""
    return instruction.opcode == "bitcast" or is_free_reshape(instruction)


def _moves_nothing(reshape: Instruction) -> bool:
    """Return whether a reshape (or a bitcast read as one) keeps every element in its place in
    memory.

    Both shapes split into the same blocks of dimensions, at the sizes that they have in common.
    Nothing moves if memory holds the blocks in the same order, and each block in its own order.
    """
    shapes = reshape.operands[0].shape, reshape.shape
    if any(not size for shape in shapes for size in shape.dimensions):  # empty, or of unknown size
        return False
    starts = [list(accumulate(shape.dimensions, mul, initial=1)) for shape in shapes]
    common = sorted(set(starts[0]) & set(starts[1]))
    orders = []
    for shape, own_starts in zip(shapes, starts, strict=True):
        memory = shape.layout.minor_to_major[::-1] if shape.layout else range(shape.rank)
        placed = [
            (bisect(common, own_starts[number]), number)
            for number in memory
            if shape.dimensions[number] != 1
        ]
        order = list(dict.fromkeys(block for block, _ in placed))
        if placed != sorted(placed, key=lambda place: (order.index(place[0]), place[1])):
            return False
        orders.append(order)
    return orders[0] == orders[1]


def keeps_layout(copy: Instruction) -> bool:
    """Return whether a copy keeps its operand's layout."""
    operands = copy.operands
    if not operands:
        return False
    source_layout, two = copy.shape.layout, operands[0].shape.layout
    return (
        source_layout is None or two is None or source_layout.minor_to_major == two.minor_to_major
    )


def argument_name(parameter: Instruction) -> str:
    """Return the name of the function's argument that a parameter is a part of: JAX writes
    ``params['w']``, or ``args[0]`` for one without a name. Empty if the framework wrote none.
    """
    match = _ARGUMENT.match(parameter.op_name or "")
    return match[0] if match is not None else ""
