"""Linear recurrences, running products, maxima and minima, for all steps of a loop at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fusionscope.advise.recipes.directions import Direction, find_directions
from fusionscope.advise.recipes.patterns import array, build, integers, is_zero, reducer
from fusionscope.advise.recipes.vectorizing import Builder, Value
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape

_EXTREMES = frozenset({"maximum", "minimum"})
_RINGS = frozenset("f32 f64 s32 s64 u32 u64".split())
_WHOLE = frozenset("s32 s64 u32 u64".split())


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What element ``index`` of a state becomes: ``opcode`` is ``add`` for a number times itself
    plus another, else what combines it with another. ``inner`` are the instructions of the body
    between the element and its next value, which they compute last.
    """

    index: int
    opcode: str
    inner: tuple[MutableInstruction, ...]
    result: MutableInstruction


def read_recurrence(
    index: int,
    elements: Iterable[MutableInstruction],
    order: Iterable[MutableInstruction],
    result: MutableInstruction,
    values: Mapping[MutableInstruction, object],
) -> Recurrence | None:
    """Return how ``result`` depends on ``elements``, if apart from them it depends on ``values``
    alone, and is linear or an extreme.
    """
    if result.shape.element_type not in _RINGS:
        return None
    inside: dict[MutableInstruction, None] = dict.fromkeys(elements)
    for instruction in order:
        if instruction not in values and _is_linear(instruction, inside, values):
            inside[instruction] = None
    if result in inside and result.opcode != "get-tuple-element":
        inner = tuple(item for item in inside if item.opcode != "get-tuple-element")
        return Recurrence(index, "add", inner, result)
    sides = [operand for operand in result.operands if operand in inside]
    if result.opcode in _EXTREMES and len(sides) == 1 and sides[0].opcode == "get-tuple-element":
        is_known = all(operand in values for operand in result.operands if operand not in sides)
        return Recurrence(index, result.opcode, (result,), result) if is_known else None
    return None


def _is_linear(
    instruction: MutableInstruction,
    inside: Mapping[MutableInstruction, None],
    values: Mapping[MutableInstruction, object],
) -> bool:
    roles = [operand in inside for operand in instruction.operands]
    if not any(roles) or not all(
        is_inside or operand in values
        for is_inside, operand in zip(roles, instruction.operands, strict=True)
    ):
        return False
    match instruction.opcode:
        case "add" | "subtract" | "negate":
            return True
        case "multiply":
            return roles.count(True) == 1
        case "divide":
            return roles == [True, False] and instruction.shape.element_type not in _WHOLE
        case "select":
            condition = instruction.operands[0].shape.dimensions
            return not roles[0] and condition == instruction.shape.dimensions
    return False


@dataclass(frozen=True, slots=True)
class _Linear:
    """``scale`` times the element plus ``offset``; without a scale, it is one, without an offset,
    zero.
    """

    scale: Value | None = None
    offset: Value | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
    """What each step, or several of them in a row, does to the element: ``scale`` times it plus
    ``offset``, or the larger or smaller of it and ``offset``. A scale that is not stacked is
    that of all rows.
    """

    scale: Value | None
    offset: Value

    @property
    def count(self) -> int:
        return self.offset.shape.dimensions[0] or 0


class Solver:
    """Solves recurrences. ``values`` are those of the body's instructions outside of the loop."""

    def __init__(self, builder: Builder, values: Mapping[MutableInstruction, Value]) -> None:
        self._builder, self._values = builder, values

    def all_steps(self, recurrence: Recurrence, start: Value) -> Value:
        """Return the element after each step."""
        rows = self._read(recurrence)
        if recurrence.opcode != "add" or not is_zero(start.instruction):
            rows = self._begin(rows, start, recurrence.opcode)
        return self._scan(rows, recurrence.opcode)

    def directed_steps(
        self, direction: Direction, elements: Iterable[MutableInstruction], start: Value
    ) -> Value:
        """Return the element after each step: what the step makes of the direction before it."""
        builder = self._builder
        directions = find_directions(direction, start, builder, self._values)
        earlier = builder.cut(directions, 0, builder.steps - 1)
        before = builder.join([builder.row(start), earlier])
        values = {**self._values, **dict.fromkeys(elements, before)}
        for instruction in direction.inner:
            operands = [values[operand] for operand in instruction.operands]
            values[instruction] = builder.clone(instruction, operands)
        return values[direction.result]

    def last_step(self, recurrence: Recurrence, start: Value) -> Value:
        """Return the element after the last step."""
        rows, kind = self._read(recurrence), start.shape.element_type
        if rows.scale is not None or recurrence.opcode != "add":
            return self._builder.last(self.all_steps(recurrence, start))
        sizes = array(kind, start.shape.dimensions)
        total = build(
            self._builder.near,
            f"""
            zero = {kind}[] constant(0)
            sum = {sizes} reduce(%p0, zero), dimensions={{0}}, to_apply=add
            ROOT total = {sizes} add(%p1, sum)
            """,
            [rows.offset.instruction, start.instruction],
            reducer("add", kind),
        )
        return Value(total, False)

    def _read(self, recurrence: Recurrence) -> _Rows:
        """Return what each step does."""
        if recurrence.opcode != "add":
            (operand,) = (
                self._values[operand]
                for operand in recurrence.result.operands
                if operand in self._values
            )
            return _Rows(None, self._builder.stack(operand))
        lines: dict[MutableInstruction, _Linear] = {}
        for instruction in recurrence.inner:
            lines[instruction] = self._line(instruction, lines)
        line = lines[recurrence.result]
        offset = line.offset or self._number("0", recurrence.result.shape)
        return _Rows(line.scale, self._builder.stack(offset))

    def _line(
        self, instruction: MutableInstruction, lines: Mapping[MutableInstruction, _Linear]
    ) -> _Linear:
        shape = instruction.shape
        numbers = [self._values.get(operand) for operand in instruction.operands]
        inside = [
            lines.get(operand, _Linear()) if number is None else None
            for operand, number in zip(instruction.operands, numbers, strict=True)
        ]
        match instruction.opcode:
            case "negate":
                (line,) = inside
                assert line is not None
                return self._negative(line, shape)
            case "multiply" | "divide":
                line, factor = (inside[0] or inside[1], numbers[0] or numbers[1])
                assert line is not None and factor is not None
                return self._scaled(line, factor, instruction.opcode, shape)
            case "add" | "subtract":
                left, right = (
                    line or _Linear(self._number("0", shape), number)
                    for line, number in zip(inside, numbers, strict=True)
                )
                if instruction.opcode == "subtract":
                    right = self._negative(right, shape)
                return self._sum(left, right, inside, shape)
        return self._selected(instruction, numbers, inside)

    def _selected(
        self,
        selection: MutableInstruction,
        numbers: list[Value | None],
        inside: list[_Linear | None],
    ) -> _Linear:
        shape, (condition, *_) = selection.shape, numbers
        assert condition is not None
        scales, offsets = [condition], [condition]
        for number, line in zip(numbers[1:], inside[1:], strict=True):
            constant = "1" if line is not None and line.scale is None else "0"
            scale = line.scale if line is not None else None
            offset = number if line is None else line.offset
            scales.append(scale or self._number(constant, shape))
            offsets.append(offset or self._number("0", shape))
        return _Linear(self._apply("select", scales), self._apply("select", offsets))

    def _sum(
        self, left: _Linear, right: _Linear, inside: list[_Linear | None], shape: Shape
    ) -> _Linear:
        offsets = [side.offset for side in (left, right) if side.offset is not None]
        offset = self._apply("add", offsets) if len(offsets) == 2 else None
        if inside[0] is not None and inside[1] is not None:
            scales = [side.scale or self._number("1", shape) for side in (left, right)]
            scale: Value | None = self._apply("add", scales)
        else:
            scale = left.scale if inside[0] is not None else right.scale
        return _Linear(scale, offset or (offsets[0] if offsets else None))

    def _scaled(self, line: _Linear, factor: Value, opcode: str, shape: Shape) -> _Linear:
        if line.scale is not None or opcode == "divide":
            scale = self._apply(opcode, [line.scale or self._number("1", shape), factor])
        else:
            scale = factor
        offset = line.offset and self._apply(opcode, [line.offset, factor])
        return _Linear(scale, offset)

    def _negative(self, line: _Linear, shape: Shape) -> _Linear:
        scale = line.scale or self._number("1", shape)
        offset = line.offset and self._apply("negate", [line.offset])
        return _Linear(self._apply("negate", [scale]), offset)

    def _number(self, literal: str, shape: Shape) -> Value:
        """Return an array of copies of a number, the same in all steps."""
        text = array(shape.element_type, shape.dimensions)
        lines = f"""
            number = {shape.element_type}[] constant({literal})
            ROOT numbers = {text} broadcast(number), dimensions={{}}
            """
        return Value(build(self._builder.near, lines, []), False)

    def _apply(self, opcode: str, operands: list[Value]) -> Value:
        """Combine arrays of the same shape, of which some may be the same in all steps or rows."""
        shape = operands[-1].shape
        stacked = [operand for operand in operands if operand.is_stacked]
        if stacked:
            rows, *sizes = stacked[0].shape.dimensions
            shape = Shape(shape.element_type, (rows, *sizes))
            operands = [self._spread(operand, rows or 0) for operand in operands]
        value = self._builder.make(opcode, Shape(shape.element_type, shape.dimensions), operands)
        return Value(value.instruction, bool(stacked))

    def _spread(self, value: Value, rows: int) -> Value:
        if value.is_stacked:
            return value
        sizes = value.shape.dimensions
        shape = Shape(value.shape.element_type, (rows, *sizes))
        places = f", dimensions={integers(range(1, len(sizes) + 1))}"
        return self._builder.make("broadcast", shape, [value], places)

    def _begin(self, rows: _Rows, start: Value, opcode: str) -> _Rows:
        """Let the first step begin at ``start``."""
        first = self._combine(_Rows(None, self._builder.row(start)), self._cut(rows, 0, 1), opcode)
        later = self._builder.cut(rows.offset, 1, rows.count)
        return _Rows(rows.scale, self._builder.join([first.offset, later]))

    def _cut(self, rows: _Rows, start: int, end: int, stride: int = 1) -> _Rows:
        scale = rows.scale
        if scale is not None and scale.is_stacked:
            scale = self._builder.cut(scale, start, end, stride)
        return _Rows(scale, self._builder.cut(rows.offset, start, end, stride))

    def _combine(self, earlier: _Rows, later: _Rows, opcode: str) -> _Rows:
        """Return what the steps of ``later`` do to the results of ``earlier``."""
        offset, scale = earlier.offset, later.scale
        if scale is not None:
            offset = self._apply("multiply", [scale, offset])
            if earlier.scale is not None:
                scale = self._apply("multiply", [scale, earlier.scale])
        return _Rows(scale, self._apply(opcode, [offset, later.offset]))

    def _scan(self, rows: _Rows, opcode: str) -> Value:
        """Return the results of the first row, the first two and so on: those of every second row
        are the results of pairs, of which there are half as many.
        """
        levels = [rows]
        while levels[-1].count > 1:
            level, even = levels[-1], levels[-1].count // 2 * 2
            pairs = self._cut(level, 0, even, 2), self._cut(level, 1, even, 2)
            levels.append(self._combine(*pairs, opcode))
        results = levels.pop().offset
        while levels:
            results = self._between(levels.pop(), results, opcode)
        return results

    def _between(self, level: _Rows, odd: Value, opcode: str) -> Value:
        """Return the results of all rows of ``level``, of which every second is in ``odd``."""
        first = even = self._builder.cut(level.offset, 0, 1)
        if level.count > 2:
            earlier = self._builder.cut(odd, 0, (level.count - 1) // 2)
            later = self._cut(level, 2, level.count, 2)
            even = self._combine(_Rows(None, earlier), later, opcode).offset
            even = self._builder.join([first, even])
        return self._interleave(even, odd, level.count)

    def _interleave(self, even: Value, odd: Value, rows: int) -> Value:
        """Return ``rows`` rows in turns, as the sum of both with zeros between."""
        kind, sizes = even.shape.element_type, even.shape.dimensions[1:]
        shape = Shape(kind, (rows, *sizes))
        zero = Value(build(self._builder.near, f"ROOT zero = {kind}[] constant(0)", []), False)
        later, sides = "x0_0" * len(sizes), []
        for side, low, high in ((even, 0, 1 - rows % 2), (odd, 1, rows % 2)):
            text = f", padding={low}_{high}_1{later}"
            sides.append(self._builder.make("pad", shape, [side, zero], text))
        return self._builder.make("add", shape, sides)
